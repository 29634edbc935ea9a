"""Plan of a convolution with halos: sizes of input and filters -> grid of positions, taps of a stage, stages.

The input is packed into chunks of 16 bytes of channels, each for all positions of a grid (images, strips, three
extents) that includes the padding as zeros. So the input of a tap lies at a fixed distance from each output position,
and a tile of positions with its halo is one piece of memory. Wide lines are cut into strips, which repeat the columns
that their filters share: the lines of a strip are short, and so is the halo of a filter of several lines. A stage holds
the taps of the last two extents or, where they would not fit or the halo would cost more, of the last one.
"""

from typing import NamedTuple

from workbench.kernels.conv.patch.plan import expand_setting

SHORTEST_STRIP = 32
# products of one channel of four bytes, or two of two, that an SM multiplies in a cycle: 1024 of TF32
CHANNEL_BYTES_PER_CYCLE = 4096
L2_BYTES_PER_CYCLE = 32  # of one SM while all SMs read; inferred from products, which reach at least this


class HaloPlan(NamedTuple):
    """What the kernel needs for one size of input and filters."""

    outputs: tuple[int, int, int]  # of the three extents
    grid: tuple[int, int, int, int]  # strips, positions along the three extents
    width: int  # outputs of a line of a strip
    origins: tuple[int, int, int]  # the input of the first position along each extent
    outer: tuple[
        tuple[int, int], tuple[int, int]
    ]  # (taps, grid positions between them) of the first extent, and of the second: a stage for each
    inner: tuple[
        tuple[int, int], tuple[int, int]
    ]  # the same of the taps that share a stage: of the last extent, of the one before
    patch: int  # positions that a stage loads: a tile and its halo
    stages: int
    cost: float  # modelled cycles of an SM for one image, a byte of channels and a tile of filters

    @property
    def positions(self) -> int:
        """Grid positions of an image."""
        strips, depth, lines, columns = self.grid
        return strips * depth * lines * columns

    def count_strip_tiles(self, tile_m: int) -> int:
        """Tiles that a strip of an image has on average, rounded."""
        return max(round(self.positions / self.grid[0] / tile_m), 1)

    @property
    def steps(self) -> int:
        """Stages that a tile takes for each group of channels."""
        return self.outer[0][0] * self.outer[1][0]

    @property
    def taps(self) -> int:
        """Taps that share a stage."""
        return self.inner[0][0] * self.inner[1][0]

    @property
    def span(self) -> int:
        """Positions that all stages of a tile load, from its first one on."""
        return self.patch + sum((taps - 1) * step for taps, step in self.outer)


def plan_extent(size, taps, padding, dilation, output_padding, transposed):
    """Return (outputs, the input of the first position) of one extent at stride 1; taps count from that input on."""
    reach = (taps - 1) * dilation
    if transposed:  # a convolution by the filter from its end on, with the rest of the reach as padding
        return size - 2 * padding + reach + output_padding, padding - reach
    return size + 2 * padding - reach, -padding


def list_plans(extents, taps, how, tile):
    """Yield every division into strips and stages, the number of stages left open; none where no filter fits.

    `how` is (padding, dilation, output padding, whether it is transposed), `tile` (positions, filters, channels).
    """
    space = len(extents)
    sizes, counts = expand_setting(extents, space, 1), expand_setting(taps, space, 1)
    padding, dilation = expand_setting(how[0], space, 0), expand_setting(how[1], space, 1)
    more = expand_setting(how[2], space, 0)
    planned = [plan_extent(sizes[i], counts[i], padding[i], dilation[i], more[i], how[3]) for i in range(3)]
    outputs, origins = tuple(each[0] for each in planned), tuple(each[1] for each in planned)
    if min(outputs) < 1:
        return
    reach = [(counts[i] - 1) * dilation[i] for i in range(3)]
    m, n, _ = tile
    for strips in range(1, max(outputs[2] // SHORTEST_STRIP, 1) + 1):
        columns = -(-outputs[2] // strips)
        grid = (strips, outputs[0] + reach[0], outputs[1] + reach[1], columns + reach[2])
        depth, line = (counts[0], dilation[0] * grid[2] * grid[3]), (counts[1], dilation[1] * grid[3])
        for outer, second in (((depth, (1, 0)), line), ((depth, line), (1, 0))):
            inner = ((counts[2], dilation[2]), second)
            patch = -(-(m + sum((count - 1) * step for count, step in inner)) // 8) * 8
            plan = HaloPlan(outputs, grid, columns, origins, outer, inner, patch, 0, 0.0)
            multiply = m * n * plan.taps / CHANNEL_BYTES_PER_CYCLE
            fetch = (patch + plan.taps * n) / L2_BYTES_PER_CYCLE
            yield plan._replace(cost=(multiply + fetch) * plan.steps * plan.positions / m)


def plan_halo(
    extents: tuple, taps: tuple, how: tuple, tile: tuple, width: int, most_stages: int, most_bytes: int
) -> HaloPlan | None:
    """Return the plan of least cost with at least two stages in shared memory; None if there is none.

    `extents` and `taps` are as many as the input has; `width` is the bytes of an element. Where the filters do not fit
    into the input there is no plan either.
    """
    found = []
    for plan in list_plans(extents, taps, how, tile):
        stages = most_bytes // ((plan.patch + plan.taps * tile[1]) * tile[2] * width)
        if stages >= 2:
            found.append(plan._replace(stages=min(stages, most_stages)))
    return min(found, key=lambda plan: (plan.cost, plan.grid[0]), default=None)
