"""What the emulated boards look like: where each kernel puts which node, and what the board is.

Node names and kinds follow the drivers; temperatures, currents and idle clocks are made up.
"""

from typing import Literal, NamedTuple

DEBUG = "/sys/kernel/debug"

ClockAt = Literal["bpmp", "bwmgr", "clk"]
ActivityAt = Literal["cactmon", "actmon", "bpmp"]


class Rail(NamedTuple):
    """A channel of a power monitor by its label on the board, and edgeprof's signal for it."""

    label: str
    signal: str | None
    mv: int
    ma: int


class Chip(NamedTuple):
    """A power monitor on an I2C bus, with up to three rails. ``ina3221x`` is the driver of kernels
    up to JetPack 4, which shows the chip under iio instead of hwmon."""

    address: str
    driver: Literal["ina3221", "ina3221x", "ina238"]
    rails: tuple[Rail, ...]


class Zone(NamedTuple):
    """A thermal zone; one without a temperature belongs to a block that is off."""

    type: str
    signal: str | None
    celsius: float | None


class Board(NamedTuple):
    """The choices that make one board. ``l4t`` is the release and its revision."""

    name: str
    model: str
    compatible: tuple[str, ...]
    l4t: tuple[int, str]
    modes: tuple[tuple[str, int], ...]  # name, cap on the EMC clock
    mode: int
    cores: int
    cpu_khz: tuple[int, int]
    memory_mib: int
    bytes_per_emc_clock: int
    emc_hz: tuple[int, int]
    clock_at: ClockAt
    activity_at: tuple[ActivityAt, ...]
    gpu: str
    gpu_device: str
    gpu_hz: tuple[int, int]
    gpu_load: bool
    chips: tuple[Chip, ...]
    zones: tuple[Zone, ...]
    cooling: tuple[str, ...] = ("pwm-fan", "cpu-throttle-alert", "gpu-throttle-alert")
    over_current: int = 0  # counters of over-current events

    @property
    def soc(self) -> str:
        return self.compatible[-1].removeprefix("nvidia,")

    @property
    def counts_khz(self) -> bool:
        """Whether a node tells EMC activity in kHz, a scale that is established."""
        return self.activity_at != ("bpmp",)


def _orin_nano_chips() -> tuple[Chip, ...]:
    return (
        Chip(
            "1-0040",
            "ina3221",
            (
                Rail("VDD_IN", "power_w.total", 5000, 1200),
                Rail("VDD_CPU_GPU_CV", "power_w.VDD_CPU_GPU_CV", 5000, 300),
                Rail("VDD_SOC", "power_w.VDD_SOC", 5000, 280),
            ),
        ),
    )


_ORIN_ZONES = (
    Zone("cpu-thermal", "temp_c.cpu", 48.5),
    Zone("gpu-thermal", "temp_c.gpu", 47.25),
    Zone("cv0-thermal", "temp_c.cv0", None),
    Zone("soc0-thermal", "temp_c.soc0", 47.0),
    Zone("tj-thermal", "temp_c.tj", 48.5),
)
_ORIN_GPU = "/sys/devices/platform/bus@0/17000000.gpu"

ORIN_NANO = Board(
    name="orin-nano",
    model="NVIDIA Jetson Orin Nano Developer Kit",
    compatible=("nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0005", "nvidia,tegra234"),
    l4t=(36, "3.0"),
    modes=(("15W", 0), ("7W", 0)),
    mode=0,
    cores=6,
    cpu_khz=(115_200, 1_510_400),
    memory_mib=7607,
    bytes_per_emc_clock=32,
    emc_hz=(204_000_000, 2_133_000_000),
    clock_at="bpmp",
    activity_at=("cactmon",),
    gpu="17000000.gpu",
    gpu_device=_ORIN_GPU,
    gpu_hz=(306_000_000, 612_000_000),
    gpu_load=True,
    chips=_orin_nano_chips(),
    zones=_ORIN_ZONES,
    over_current=3,
)
ORIN_NANO_SUPER = ORIN_NANO._replace(
    name="orin-nano-super",
    model="NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
    compatible=("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234"),
    l4t=(36, "4.3"),
    modes=(("15W", 2_133_000_000), ("25W", 3_199_000_000), ("MAXN_SUPER", -1)),
    mode=1,
    cpu_khz=(115_200, 1_728_000),
    emc_hz=(204_000_000, 3_199_000_000),
    activity_at=("cactmon", "bpmp"),
    gpu_hz=(306_000_000, 1_020_000_000),
)
AGX_ORIN = ORIN_NANO_SUPER._replace(
    name="agx-orin",
    model="NVIDIA Jetson AGX Orin Developer Kit",
    compatible=("nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"),
    modes=(("MAXN", 0), ("MODE_15W", 2_133_000_000), ("MODE_30W", 3_200_000_000)),
    mode=0,
    cores=12,
    cpu_khz=(115_200, 2_201_600),
    memory_mib=62_801,
    bytes_per_emc_clock=64,
    gpu_hz=(306_000_000, 1_300_500_000),
    chips=(
        Chip(
            "1-0040",
            "ina3221",
            (
                Rail("VDD_GPU_SOC", "power_w.VDD_GPU_SOC", 12_000, 400),
                Rail("VDD_CPU_CV", "power_w.VDD_CPU_CV", 12_000, 120),
                Rail("VIN_SYS_5V0", "power_w.VIN_SYS_5V0", 5000, 700),
            ),
        ),
        Chip(
            "1-0041",
            "ina3221",
            (
                Rail("NC", None, 0, 0),
                Rail("VDDQ_VDD2_1V8AO", "power_w.VDDQ_VDD2_1V8AO", 5000, 60),
                Rail("NC", None, 0, 0),
            ),
        ),
    ),
)
THOR_LIKE = Board(
    name="thor-like",
    model="NVIDIA Jetson AGX Thor Developer Kit",
    compatible=("nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"),
    l4t=(38, "4.0"),
    modes=(("MAXN", 0), ("120W", 0)),
    mode=1,
    cores=14,
    cpu_khz=(54_000, 2_601_000),
    memory_mib=125_749,
    bytes_per_emc_clock=64,
    emc_hz=(665_600_000, 4_266_000_000),
    clock_at="bwmgr",
    activity_at=("bpmp",),
    gpu="gpu-gpc-0",
    gpu_device="/sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0",
    gpu_hz=(315_000_000, 1_575_000_000),
    gpu_load=False,  # the driver of this GPU tells its load through NVML only
    chips=(
        Chip(
            "1-0040",
            "ina3221",
            (
                Rail("VDD_GPU", "power_w.VDD_GPU", 9000, 700),
                Rail("VDD_CPU_SOC_MSS", "power_w.VDD_CPU_SOC_MSS", 9000, 600),
                Rail("VIN_SYS_5V0", "power_w.VIN_SYS_5V0", 5000, 900),
            ),
        ),
        Chip("2-0044", "ina238", (Rail("VIN", "power_w.total", 20_000, 1450),)),
    ),
    zones=(
        Zone("cpu-thermal", "temp_c.cpu", 49.75),
        Zone("tj-thermal", "temp_c.tj", 51.25),
        Zone("gpu-thermal", "temp_c.gpu", 51.25),
    ),
    over_current=2,
)
XAVIER_NX = Board(
    name="xavier-nx",
    model="NVIDIA Jetson Xavier NX Developer Kit",
    compatible=("nvidia,p3509-0000+p3668-0000", "nvidia,p3668-0000", "nvidia,tegra194"),
    l4t=(35, "4.1"),
    modes=(("MODE_15W_2CORE", 0), ("MODE_15W_4CORE", 0), ("MODE_15W_6CORE", 0)),
    mode=2,
    cores=6,
    cpu_khz=(115_200, 1_907_200),
    memory_mib=6854,
    bytes_per_emc_clock=32,
    emc_hz=(204_000_000, 1_600_000_000),
    clock_at="bpmp",
    activity_at=("actmon",),
    gpu="17000000.gv11b",
    gpu_device="/sys/devices/17000000.gv11b",
    gpu_hz=(114_000_000, 1_109_000_000),
    gpu_load=True,
    chips=_orin_nano_chips(),
    zones=(
        Zone("AUX-therm", "temp_c.aux", 39.0),
        Zone("CPU-therm", "temp_c.cpu", 39.5),
        Zone("GPU-therm", "temp_c.gpu", 37.5),
        Zone("PMIC-Die", None, 50.0),
    ),
)
NANO = Board(
    name="nano",
    model="NVIDIA Jetson Nano Developer Kit",
    compatible=("nvidia,p3449-0000-b00+p3448-0000-b00", "nvidia,jetson-nano", "nvidia,tegra210"),
    l4t=(32, "7.1"),
    modes=(("MAXN", 0), ("5W", 0)),
    mode=0,
    cores=4,
    cpu_khz=(102_000, 1_479_000),
    memory_mib=3964,
    bytes_per_emc_clock=16,
    emc_hz=(204_000_000, 1_600_000_000),
    clock_at="clk",
    activity_at=("actmon",),
    gpu="57000000.gpu",
    gpu_device="/sys/devices/57000000.gpu",
    gpu_hz=(76_000_000, 921_000_000),
    gpu_load=True,
    chips=(
        Chip(
            "6-0040",
            "ina3221x",
            (
                Rail("POM_5V_IN", "power_w.total", 5000, 200),
                Rail("POM_5V_GPU", "power_w.POM_5V_GPU", 5000, 0),
                Rail("POM_5V_CPU", "power_w.POM_5V_CPU", 5000, 40),
            ),
        ),
    ),
    zones=(
        Zone("CPU-therm", "temp_c.cpu", 30.0),
        Zone("GPU-therm", "temp_c.gpu", 29.5),
        Zone("PMIC-Die", None, 100.0),
    ),
    cooling=("pwm-fan", "thermal-fan-est"),
)

BOARDS = {
    board.name: board
    for board in (ORIN_NANO, ORIN_NANO_SUPER, AGX_ORIN, THOR_LIKE, XAVIER_NX, NANO)
}
