"""`python -m strandline.simulation` is `strandline sim`."""

from strandline.simulation.command import main

raise SystemExit(main())
