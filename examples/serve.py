"""Serve a model's text over HTTP, piece by piece as it is written.

    transnormer export my-text my-model     # from a stored run
    python examples/serve.py my-model       # or OWNER/NAME on the Hugging Face Hub
    curl -N "http://127.0.0.1:8000/?prompt=Once+upon&tokens=300"

One request at a time, on this machine only. It shows how to stream; it is not built to face the internet.
"""

import argparse
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qsl, urlsplit

from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.sampling import Sampling
from transnormer_lib.models.text import stream


def handler(model: LanguageModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = {"prompt": "The ", "tokens": "200", "temperature": "0.8", "seed": "0"}
            asked |= dict(parse_qsl(urlsplit(self.path).query))
            try:
                sampling = Sampling(temperature=float(asked["temperature"]), top_p=0.95)
                pieces = stream(model, asked["prompt"], int(asked["tokens"]), sampling, int(asked["seed"]))
            except ValueError as mistake:
                self.send_error(400, explain=str(mistake))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()  # HTTP/1.0: the text ends when the connection does
            try:
                for piece in pieces:
                    self.wfile.write(piece.encode())
                    self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                pass  # the reader has left

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a model's text over HTTP.")
    parser.add_argument("model", help="a folder written by `transnormer export`, or OWNER/NAME on the Hub")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one")
    options = parser.parse_args()
    server = HTTPServer(("127.0.0.1", options.port), handler(LanguageModel.from_pretrained(options.model)))
    print(f"http://127.0.0.1:{server.server_port}/?prompt=Once+upon", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
