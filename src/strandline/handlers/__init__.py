"""One async function per API. Here the engines meet: a handler asks one, tells another, and builds the answer.

Every handler has the shape `async def handle_x(broker, call, request) -> response`. Same file names as
`protocol/messages`. `None` means that no response is sent; raising `KafkaError` answers in the API's error shape;
raising `ConnectionAbortedError` closes the connection with the reason logged.
"""
