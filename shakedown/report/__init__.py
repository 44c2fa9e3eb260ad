"""The report: a pure view model of a judged run, and its renderers (HTML, JUnit, Prometheus, Markdown).

`view.build` turns records into what the reader sees and does no input or output; `write` is the edge.
The same run gives the same bytes: nothing here reads the clock.
"""
