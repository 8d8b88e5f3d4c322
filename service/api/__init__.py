"""The HTTP API: what the store knows, asked and watched over the wire.

`app.make_app` puts it together; nothing here is imported by anything that does not serve.
"""
