"""Kafka's wire protocol: messages declared once for all versions, compiled codecs, frames and headers, the API
table."""
