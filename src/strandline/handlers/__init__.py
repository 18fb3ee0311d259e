"""One async function per API: it calls the engines (`replication`, `controller` …) and builds the response.

`async def handle_x(broker, call, request) -> response`, in the files of the same names as in `protocol/messages`;
`tables` has one row per API. A response of `None` is not sent; a `KafkaError` becomes the error response of the API; a
`ConnectionAbortedError` closes the connection with the reason logged.
"""
