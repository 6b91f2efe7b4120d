"""A shop page on the service: six items, a button under each, and the page learns. Open http://127.0.0.1:8780.

Start the service first (``treeward serve ITEMS``), then: ``python examples/shop.py [SERVICE]``. Each visitor
gets a cookie and is a separate user. The shop talks to the service; browsers talk to the shop only.
"""

import sys
from html import escape
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs
from uuid import uuid4

import httpx

from treeward.client import Client, ServiceError

SERVICE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
STYLE = (
    "body{font:18px system-ui;max-width:50rem;margin:3rem auto}article{display:inline-block;width:14rem;margin:.5rem}"
)
client, items = Client(SERVICE), httpx.Client(base_url=SERVICE)


class Shop(BaseHTTPRequestHandler):
    """One page."""

    def do_GET(self):
        """Show six items."""
        cookie = SimpleCookie(self.headers.get("cookie", "")).get("user")
        user = cookie.value if cookie else uuid4().hex
        cards = []
        for choice in client.recommend(user, n=6):
            title = items.get(f"/v1/items/{choice['item']}").json()["title"] or choice["item"]
            id = escape(choice["decision_id"])
            cards.append(
                f"<article><h3>{escape(str(title))}</h3><form method=post><input type=hidden name=id value={id}>"
                "<button name=reward value=1>like</button> <button name=reward value=0>skip</button></form></article>"
            )
        page = f"<!doctype html><meta charset=utf-8><title>Shop</title><style>{STYLE}</style><h1>For you</h1>"
        self.answer(200, page + "".join(cards), ("set-cookie", f"user={user}; HttpOnly; SameSite=Strict"))

    def do_POST(self):
        """Record a reward."""
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        try:
            client.feedback(form["id"][0], float(form["reward"][0]))
        except (ServiceError, KeyError, ValueError):
            self.answer(400, "That was no decision of ours.")
            return
        self.answer(303, "", ("location", "/"))

    def answer(self, status, page, *headers):
        """Send a page."""
        self.send_response(status)
        for name, value in (("content-type", "text/html; charset=utf-8"), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page.encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8780), Shop).serve_forever()
