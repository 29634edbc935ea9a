"""Views of a search: its tree, its curves, and both while it runs.

draw_search_tree(tree)                 the tree as text, SVG and plotly
draw_curve(tree), compare_searches(..) best so far against trials
draw_front(tree)                       joules against time
ShownLog(log)                          a log that draws the tree under the cell while the search runs
"""

from workbench.views.search.curves import compare_searches, draw_curve
from workbench.views.search.front import draw_front
from workbench.views.search.live import LiveTree, ShownLog
from workbench.views.search.outline import Row, find_rows, summarise
from workbench.views.search.tree_figure import draw_search_tree

__all__ = [
    "LiveTree",
    "Row",
    "ShownLog",
    "compare_searches",
    "draw_curve",
    "draw_front",
    "draw_search_tree",
    "find_rows",
    "summarise",
]
