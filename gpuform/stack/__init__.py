"""The verbs of one stack: preflight, preview, recover, destroy, drift and init."""
