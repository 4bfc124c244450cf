"""Queuegate as one import package.

The source folders at the root of the repository are linked here, so that a checkout, a wheel and an
editable install all import `queuegate.gateway`, `queuegate.protocol`, `queuegate.scheduler` and
`queuegate.storage`.
"""
