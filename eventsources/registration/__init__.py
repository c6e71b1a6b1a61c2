"""Registers hooks at the services that are to tell us: what is there is compared with what is wanted, and put right.

Nothing here is needed to receive events: it runs beside the servers, and whatever fails is tried again.
"""
