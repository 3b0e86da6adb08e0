"""The console: pages in the browser for whoever is responsible for the conversations.

`app.py` builds the application that is served below `/console`. A page is an operation of the HTTP
API, or several, written as HTML; the console itself reads no store. `page_definition.py` says what
a page is, `live_stream.py` keeps open pages up to date, `form_actions.py` runs what a button asks
for. Needs the extra `console`.
"""
