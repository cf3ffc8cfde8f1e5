"""Write records one by one, and say which are written; what the tests of survival kill or let fail."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from domainadaptor.lab.records.store import Store
from tests.lab.records.samples import evaluation, settings

with Store(Path(sys.argv[1])) as store:
    for seed in range(int(sys.argv[2])):
        record = evaluation(run=settings(seed=seed))
        with store.claim(record.id) as own:
            assert own
            store.write(record)
            print(record.id, flush=True)
    store.export()
    print("exported", flush=True)
