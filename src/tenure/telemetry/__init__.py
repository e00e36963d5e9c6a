"""What a process tells of itself: to Prometheus, to OpenTelemetry, and to its log.

    from tenure.telemetry.prometheus import serve      # pip install 'tenure[prometheus]'
    from tenure.telemetry.otel import instrument       # pip install 'tenure[otel]'
    from tenure.telemetry.logs import JsonFormatter

Nothing here is imported by the rest of tenure: whoever does not use it pays nothing for it.
"""
