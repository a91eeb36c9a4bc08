from concurrent import futures

import grpc
import kv_pb2
import kv_pb2_grpc

GREETING = "welcome"


class Store(kv_pb2_grpc.StoreServicer):
    def __init__(self):
        self.values = {}

    def Hello(self, request, context):
        return kv_pb2.Greeting(text=f"{GREETING}, {request.text}")

    def Set(self, request, context):
        self.values[request.key] = request.value
        return request

    def Get(self, request, context):
        return kv_pb2.Pair(key=request.key, value=self.values.get(request.key, ""))


server = grpc.server(futures.ThreadPoolExecutor(4))
kv_pb2_grpc.add_StoreServicer_to_server(Store(), server)
server.add_insecure_port("127.0.0.1:5328")
server.start()
print("serving", flush=True)
server.wait_for_termination()
