"""The native REST API: declared endpoints, which validate requests and describe themselves."""
