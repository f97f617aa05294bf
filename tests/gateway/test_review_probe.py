import asyncio, json, sys, time, os
from typing import Any
import pytest
from mcpbridge import dispatcher
from mcpbridge.gateway import discovery, calling
from mcpbridge.gateway.catalog import catalog, SEALED
from mcpbridge.gateway.sessions import pool
from mcpbridge.gateway.conversing import Session
from mcpbridge.gateway.connecting import secrets_of, struck_out
from mcpbridge.gateway.specs import BackendSpec
from mcpbridge.gateway.federation import federation
from mcpbridge.models import Action, Backend
from mcpbridge.registry import registry
from tests.gateway.conftest import register
from tests.gateway.faulty import faulty
from tests.mcpbridge.conftest import in_thread

async def test_p1_breaker_client_timeouts(small, execute, make_caller):
    for _ in range(6):
        await execute(intent="QUERY", action="small.wait", params={"seconds": 3}, constraints={"timeout_ms": 1})
    a = await execute(by=make_caller("read", agent="other"), intent="QUERY", action="small.echo", params={"text": "x"})
    print(a)
    assert a["ok"]

async def test_p2_gate_lost(small, execute, caller, project):
    from workflow.models import Project
    from devflow import ports
    in_thread(lambda: Project.objects.filter(pk=project.pk).update(gates_enabled=True))
    assert (await execute(intent="ANALYZE", action="small.echo", params={"text": "x"}))["ok"]
    for _ in range(10):
        a = await execute(intent="MODIFY", action="small.write_file", params={"name": "/tmp/rev/x", "text": "x"}, constraints={"timeout_ms": 1})
        print(a["error"])
    await asyncio.sleep(0.3)
    a = await execute(intent="MODIFY", action="small.write_file", params={"name": "/tmp/rev/x", "text": "x"})
    print(a)
    assert a["ok"]

async def test_p3_held_lookup(small, execute):
    def w():
        r = Action.objects.get(name="write_file"); r.lookup = {"action": "launch", "params": {"what": "{text}"}}; r.save()
        r = Action.objects.get(name="launch"); r.held = {"name": "launch"}; r.save()
    in_thread(w); catalog.forget()
    a = await execute(intent="MODIFY", action="small.write_file", params={"name": "/tmp/rev/y", "text": "x"})
    print(a)
    assert not a["ok"]

async def test_p6_own_intent_weaker(gateway, execute):
    a = await execute(intent="QUERY", effect="MUTATING", action="devflow.set_project", params={"project": "gateway"})
    print(a)
    assert a["ok"] is False

SHAPES = {
 "strings": ["x"], "none": None, "object": {"a": 1}, "noname": [{"inputSchema": {}}],
 "schema_text": [{"name": "a", "inputSchema": "x"}], "schema_list": [{"name": "a", "inputSchema": [1]}],
 "ann": [{"name": "a", "inputSchema": {"type": "object"}, "annotations": "x"}],
 "annl": [{"name": "a", "inputSchema": {"type": "object"}, "annotations": [1]}],
 "out": [{"name": "a", "inputSchema": {"type": "object"}, "outputSchema": "x"}],
 "props": [{"name": "a", "inputSchema": {"type": "object", "properties": {"x": True}, "required": ["x"]}}],
 "nul": [{"name": "a\u0000b", "description": "\u0000", "inputSchema": {"type": "object"}}],
 "number": [{"name": 5, "inputSchema": {"type": "object"}}],
 "dtitle": [{"name": "a", "title": {"x": 1}, "description": ["x"], "inputSchema": {"type": "object"}}],
 "long": [{"name": "n" * 300, "inputSchema": {"type": "object"}}],
}
SERVER = r'''
import sys, json
tools = json.loads(sys.argv[1])
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    elif m.get("method") == "tools/list":
        r = {"tools": tools}
    elif "id" in m:
        r = {}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
'''
@pytest.mark.parametrize("shape", list(SHAPES))
async def test_p8_shapes(gateway, shape, execute):
    spec = BackendSpec(id="hostile", transport="stdio", command=sys.executable, args=("-c", SERVER, json.dumps(SHAPES[shape])))
    row = await asyncio.to_thread(in_thread, lambda: Backend.objects.create(backend_id="hostile", transport="stdio", command=spec.command, args=list(spec.args)))
    from mcpbridge.gateway.catalog import backend_spec
    found = await discovery.refresh(backend_spec(row))
    print(type(found), found)
    rows = await asyncio.to_thread(in_thread, lambda: list(Action.objects.values("name", "problem", "input_schema")))
    print(rows)
    catalog.forget()
    await registry.refresh()
    try:
        if not isinstance(found, Exception): discovery.as_actions(spec, found)
    finally:
        a = await execute(intent="QUERY", action="hostile.a", params={})
        print(a)
        if rows:
            a = await execute(intent="MODIFY", action=rows[0]["name"][:200], params={})
            print(a)

async def test_p11_closed(small):
    from mcpbridge.gateway.catalog import backend_spec
    s = Session(backend_spec(small), None)
    await s.client()
    await s.close()
    try:
        await s.request("tools/list", None, timeout=5)
    except BaseException as e:
        print(type(e), e)
        from devflow.errors import DevFlowError
        assert isinstance(e, DevFlowError)

async def test_p4_inherit(gateway, execute, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN_X", "ghp_supersecretvalue")
    spec = BackendSpec(id="x", transport="stdio", command=sys.executable, args=("-c", "import os,sys; sys.stderr.write('bad '+os.environ['GITHUB_TOKEN_X']); sys.exit(3)"), inherit_env=("GITHUB_TOKEN_X",))
    s = Session(spec, None)
    with pytest.raises(Exception) as e:
        await s.client()
    print(e.value)
    await s.close()
    assert "supersecret" not in str(e.value)

async def test_p4b_cut(gateway, monkeypatch):
    spec = BackendSpec(id="x", transport="stdio", command=sys.executable, args=("-c", "import os,sys; sys.stderr.write('bad '+os.environ['TOK']+'z'*980); sys.exit(3)"), env={"TOK": "ghp_supersecretvalue-"+"0123456789abcdef"})
    s = Session(spec, None)
    with pytest.raises(Exception) as e:
        await s.client()
    print(str(e.value)[:300])
    await s.close()
    assert "cdef" not in str(e.value)

async def test_p5_header(gateway, monkeypatch):
    monkeypatch.setenv("TOKX", "supersecretvalue\n")
    spec = BackendSpec(id="x", transport="http", url="http://127.0.0.1:9/mcp", headers={"Authorization": "Bearer ${TOKX}"})
    from tests.fakes import receiver
    srv = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = srv.sockets[0].getsockname()[1]
    import dataclasses
    for t in ("http", "sse"):
        s = Session(dataclasses.replace(spec, transport=t, url=f"http://127.0.0.1:{port}/mcp"), None)
        with pytest.raises(Exception) as e:
            await s.client()
        print(e.value)
        await s.close()
        assert "supersecret" not in str(e.value)

def test_p12_ast():
    import ast
    from mcpbridge.gateway.artifacts import _check_python
    from mcpbridge.gateway.specs import ActionSpec
    for name, code in {"minus": "-"*200000+"1", "paren": "("*100000, "plus": "+".join(["1"]*200000), "attr": "a"+".b"*200000, "big": "x = [1, 2, 3]\n"*75000, "not": "not "*100000+"1", "pow": "**".join(["1"]*100000), "if": "".join(" "*i+"if 1:\n" for i in range(99))}.items():
        t = time.perf_counter()
        try:
            _check_python(code, ActionSpec(backend="a", name="b")); r="ok"
        except Exception as exc:
            r = str(exc)[:80]
        print(name, len(code), r, round(time.perf_counter()-t, 3))

def test_p13_pattern():
    from mcpbridge.gateway.specs import ActionSpec, schema_fault
    for p in [r"^(a+)+$", r"^(?=(a+)+$)(a+)+b$", r"^(a|aa)+\1$", r"(?=a)(a*)*b"]:
        schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": p}}}
        t = time.perf_counter(); f = schema_fault(schema)
        try:
            ActionSpec(backend="a", name="b", input_schema=schema).check({"x": "a"*50000+"!"}); r="ok"
        except Exception as exc:
            r = str(exc)[:100] + str(exc)[-100:]
        print(p, f, r, round(time.perf_counter()-t, 3))
    schema = {"type":"object","anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["x"]},{"properties":{"a":{"$ref":"#"}},"required":["y"]}]}
    v = {}
    for _ in range(16): v = {"a": v}
    t = time.perf_counter()
    try:
        ActionSpec(backend="a", name="b", input_schema=schema).check(v)
    except Exception as exc: print(str(exc)[:100])
    print("anyOf", time.perf_counter()-t)
