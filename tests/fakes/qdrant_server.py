"""A Qdrant server on loopback: real gRPC, as much of it as DevFlow uses, answering from the library's local imitation.

with QdrantServer() as server:                 # server.url, server.port
    server.stop(); server.start()              # what it holds outlives that
    server.fail(grpc.StatusCode.INTERNAL)      # every call, until `server.work()`
    server.hang()
"""
# ruff: noqa: N802  # the methods' names are the protocol's

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
from qdrant_client import QdrantClient, models
from qdrant_client import grpc as proto
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

from devflow.throwaway import free_port


class QdrantServer:
    """Starts in `__enter__`. `calls` are the methods asked, with the API key that came with them."""

    def __init__(self, *, api_key: str = "") -> None:
        self.port = free_port()
        self.url = "http://127.0.0.1:1"  # only its host counts: everything goes over gRPC
        self.api_key = api_key
        self.calls: list[str] = []
        self.indexes: dict[str, dict[str, models.PayloadSchemaType]] = {}
        self.data = QdrantClient(location=":memory:", force_disable_check_same_thread=True)
        self.lock = threading.RLock()
        self._failing: grpc.StatusCode | None = None
        self._going = threading.Event()
        self._going.set()
        self._server: grpc.Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.data.close()

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        proto.add_PointsServicer_to_server(_Points(self), self._server)
        proto.add_CollectionsServicer_to_server(_Collections(self), self._server)
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self.work()
            self._server.stop(None).wait()
            self._server = None

    def fail(self, code: grpc.StatusCode) -> None:
        self._failing = code

    def hang(self) -> None:
        self._going.clear()

    def work(self) -> None:
        self._failing = None
        self._going.set()

    def answer(self, name: str, context: grpc.ServicerContext, work: Callable[[], Any]) -> Any:
        self.calls.append(name)
        self._going.wait(60)
        if self.api_key and ("api-key", self.api_key) not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "Invalid API key or JWT")
        if self._failing is not None:
            context.abort(self._failing, "scripted")
        try:
            with self.lock:
                return work()
        except ValueError as exc:
            missing = "not found" in str(exc)
            context.abort(grpc.StatusCode.NOT_FOUND if missing else grpc.StatusCode.INVALID_ARGUMENT, str(exc))


class _Collections(proto.CollectionsServicer):
    def __init__(self, fake: QdrantServer) -> None:
        self.fake = fake

    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            done = self.fake.data.create_collection(
                request.collection_name,
                vectors_config=GrpcToRest.convert_vectors_config(request.vectors_config),
                sparse_vectors_config=GrpcToRest.convert_sparse_vector_config(request.sparse_vectors_config),
            )
            return proto.CollectionOperationResponse(result=done)

        return self.fake.answer("create", context, work)

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            self.fake.indexes.pop(request.collection_name, None)
            return proto.CollectionOperationResponse(result=self.fake.data.delete_collection(request.collection_name))

        return self.fake.answer("drop", context, work)

    def CollectionExists(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            exists = self.fake.data.collection_exists(request.collection_name)
            return proto.CollectionExistsResponse(result=proto.CollectionExists(exists=exists))

        return self.fake.answer("exists", context, work)

    def Get(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            info = self.fake.data.get_collection(request.collection_name)
            fields = self.fake.indexes.get(request.collection_name, {})
            info.payload_schema = {
                name: models.PayloadIndexInfo(data_type=kind, points=0) for name, kind in fields.items()
            }
            return proto.GetCollectionInfoResponse(result=RestToGrpc.convert_collection_info(info))

        return self.fake.answer("get", context, work)

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            names = [one.name for one in self.fake.data.get_collections().collections]
            return proto.ListCollectionsResponse(collections=[proto.CollectionDescription(name=name) for name in names])

        return self.fake.answer("list", context, work)


def _done() -> Any:
    return proto.PointsOperationResponse(result=proto.UpdateResult(status=proto.UpdateStatus.Completed))


class _Points(proto.PointsServicer):
    def __init__(self, fake: QdrantServer) -> None:
        self.fake = fake

    def CreateFieldIndex(self, request: Any, context: grpc.ServicerContext) -> Any:
        kinds = {
            proto.FieldType.FieldTypeKeyword: models.PayloadSchemaType.KEYWORD,
            proto.FieldType.FieldTypeInteger: models.PayloadSchemaType.INTEGER,
            proto.FieldType.FieldTypeBool: models.PayloadSchemaType.BOOL,
        }

        def work() -> Any:
            self.fake.indexes.setdefault(request.collection_name, {})[request.field_name] = kinds[request.field_type]
            return _done()

        return self.fake.answer("index", context, work)

    def Upsert(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            points = [GrpcToRest.convert_point_struct(one) for one in request.points]
            self.fake.data.upsert(request.collection_name, points)
            return _done()

        return self.fake.answer("upsert", context, work)

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            self.fake.data.delete(request.collection_name, GrpcToRest.convert_points_selector(request.points))
            return _done()

        return self.fake.answer("delete", context, work)

    def QueryBatch(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            asked = [GrpcToRest.convert_query_points(one) for one in request.query_points]
            answers = self.fake.data.query_batch_points(request.collection_name, asked)
            return proto.QueryBatchResponse(
                result=[
                    proto.BatchResult(result=[RestToGrpc.convert_scored_point(hit) for hit in answer.points])
                    for answer in answers
                ]
            )

        return self.fake.answer("search", context, work)

    def Scroll(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            offset = GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None
            records, after = self.fake.data.scroll(
                request.collection_name, limit=request.limit, offset=offset, with_payload=True
            )
            following = None if after is None else RestToGrpc.convert_extended_point_id(after)
            return proto.ScrollResponse(
                result=[RestToGrpc.convert_retrieved_point(one) for one in records], next_page_offset=following
            )

        return self.fake.answer("scroll", context, work)

    def Count(self, request: Any, context: grpc.ServicerContext) -> Any:
        def work() -> Any:
            count = self.fake.data.count(request.collection_name, exact=True).count
            return proto.CountResponse(result=proto.CountResult(count=count))

        return self.fake.answer("count", context, work)
