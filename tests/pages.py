"""A stand-in for GitHub Pages on the loopback address: gzip, a ten-minute cache, 404.html."""

import contextlib
import functools
import gzip
import http.server
import pathlib
import threading
from collections.abc import Iterator
from http import HTTPStatus

COMPRESSED = ("text/", "application/javascript", "application/json", "application/xml", "image/svg+xml")


class _Pages(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        file, status = pathlib.Path(self.translate_path(self.path)), HTTPStatus.OK
        if file.is_dir():
            address = self.path.partition("?")[0]
            if not address.endswith("/"):
                return self._redirect(address + "/")
            file = file / "index.html"
        if not file.is_file():
            file, status = pathlib.Path(self.directory) / "404.html", HTTPStatus.NOT_FOUND
        data = file.read_bytes() if file.is_file() else b""
        kind = self.guess_type(str(file))
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
        self.send_header("Cache-Control", "max-age=600")
        if kind.startswith(COMPRESSED) and "gzip" in self.headers.get("Accept-Encoding", ""):
            data = gzip.compress(data, mtime=0)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _redirect(self, address: str) -> None:
        self.send_response(HTTPStatus.MOVED_PERMANENTLY)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing: tests read what the browser saw."""


@contextlib.contextmanager
def serve(folder: pathlib.Path) -> Iterator[str]:
    """Serve a built site while the block runs; the value is its address, with a slash at the end."""
    handler = functools.partial(_Pages, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
