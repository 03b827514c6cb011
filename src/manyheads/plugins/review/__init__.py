"""What a report says of the mistakes of a classifier: which classes are confused, the most confident mistakes and the
words that carry them, the risk if only sure answers are given, and what to do next.
"""

from manyheads.plugin import Part, Plugin

PARTS = (
    Part("chapter", "mistakes", "manyheads.plugins.review.mistakes:mistake_sections"),
    Part("advice", "next_steps", "manyheads.plugins.review.advice:advise"),
    Part("finding", "risk_coverage", "manyheads.plugins.review.risk:risk_by_coverage"),
)
PLUGIN = Plugin("review", parts=PARTS)
