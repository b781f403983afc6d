"""The exceptions a user can cause. Their text is the message; each knows its exit code.

EdgeprofError (1)
    UsageFault (2)        a name, option or path that the user gave is wrong
    EnvironmentFault (3)  the machine lacks something: a package, a provider, room, a permission
    FileFault (1)         a file that was given is not what it should be
        NotOffered        a provider has no such kernel, which is no fault
    PartialResult (4)     the work ended early; what was measured is kept
"""


class EdgeprofError(Exception):
    """Something failed in a way that the message explains; no traceback is due."""

    exit_code = 1


class UsageFault(EdgeprofError):
    """What was asked for does not exist or makes no sense."""

    exit_code = 2


class EnvironmentFault(EdgeprofError):
    """The machine lacks what the work needs; the message says how to get it."""

    exit_code = 3


class NotOffered(EnvironmentFault):
    """A provider has no kernel of this kind; there is nothing to mend."""


class FileFault(EdgeprofError):
    """A file is damaged, truncated or of another kind than its name says."""


class PartialResult(EdgeprofError):
    """The work stopped early; what was measured until then is kept."""

    exit_code = 4
