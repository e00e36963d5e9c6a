"""What a config costs and how soon a leader is replaced, worked out from the rules: nothing is opened or asked.

Guarantee: the same formulas are held against counted requests and timed crashes of the production classes.

Not guaranteed: your bill. It counts coordination while nothing happens, at list prices, without traffic between
regions, and without what the work itself reads and writes.
"""

from tenure.plan.cost import PROVIDERS, Circumstances
from tenure.plan.failover import Failover
from tenure.plan.figures import Knob, Plan, make_plan

__all__ = ["PROVIDERS", "Circumstances", "Failover", "Knob", "Plan", "make_plan"]
