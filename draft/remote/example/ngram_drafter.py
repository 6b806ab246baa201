"""A drafter for exacta in another process: prompt lookup in Python.

    pip install grpcio grpcio-tools
    python ngram_drafter.py /tmp/draft.sock

and in an experiment

    strategies:
      - drafter: remote
        k: [4]
        config: {socket: /tmp/draft.sock}

The engine may call from several threads, and may come back after a pause with
sequences that it told before. It never trusts a draft: the target verifies it.
"""

import os
import pathlib
import sys
import threading
from concurrent import futures

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "draftpb"))
messages, services = grpc.protos_and_services("draft.proto")

VERSION = 1


class NGram(services.DrafterServicer):
    """Drafts what followed the last occurrence of the last tokens."""

    def __init__(self, longest=4, shortest=2):
        self.longest, self.shortest = longest, shortest
        self.texts = {}
        self.lock = threading.Lock()

    def Hello(self, request, context):
        return messages.HelloReply(version=VERSION, name="ngram in Python")

    def Propose(self, request, context):
        reply = messages.ProposeReply()
        with self.lock:
            for ask in request.asks:
                text = self.texts.setdefault(ask.sequence, [])
                if ask.known > len(text):
                    reply.need_all.append(ask.sequence)
                    reply.drafts.add()
                    continue
                del text[ask.known :]
                text.extend(ask.tokens)
                reply.drafts.add(tokens=self.draft(text, ask.k))
        return reply

    def Release(self, request, context):
        with self.lock:
            for sequence in request.sequences:
                self.texts.pop(sequence, None)
        return messages.ReleaseReply()

    def draft(self, text, k):
        for n in range(self.longest, self.shortest - 1, -1):
            tail = text[-n:]
            for end in range(len(text) - 1, n - 1, -1):
                if text[end - n : end] == tail:
                    return text[end : end + k]
        return []


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} SOCKET")
    socket = sys.argv[1]
    if os.path.exists(socket):
        os.remove(socket)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    services.add_DrafterServicer_to_server(NGram(), server)
    server.add_insecure_port("unix:" + socket)
    server.start()
    print("listening on", socket, flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
