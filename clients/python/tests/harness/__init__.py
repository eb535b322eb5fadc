"""What the tests stand on: a real server, proxies before it, and one way to speak to both variants of the client."""
