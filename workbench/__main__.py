"""`python -m workbench` is `cutegen`."""

import sys

from workbench.cli import main

sys.exit(main())
