/* Changes go over the REST API, with the page's own log-in. */

import { part } from "../ask.js";

const csrf = () => document.querySelector('meta[name="csrf-token"]').content;

/** A refusal: `message` for people, `code` and `facts` of the problem details. */
export class Refused extends Error {
  constructor(problem) {
    super([problem.detail, problem.suggestion].filter(Boolean).join(" "));
    this.code = problem.code;
    this.facts = problem.errors ?? {};
  }
}

export async function send(method, path, body = method === "GET" ? undefined : {}) {
  let answer;
  try {
    answer = await fetch(`/api/v1/${path}`, {
      method,
      headers: { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": csrf() },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Refused({ detail: "The server does not answer.", suggestion: "Nothing was changed; try again." });
  }
  const data = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (answer.ok) return data;
  throw new Refused(data.detail ? data : { detail: `The server answered ${answer.status}.`, suggestion: "Reload the page." });
}

export async function fragment(url) {
  const answer = await part(url);
  if (answer.type === "opaqueredirect") location.reload();
  if (!answer.ok) throw new Error(`the page answered ${answer.status}`);
  return answer.text();
}
