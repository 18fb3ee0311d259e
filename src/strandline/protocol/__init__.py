"""Kafka's wire: messages declared once for all versions, compiled codecs, frames and headers, the table of APIs."""
