"""The ten models of golden_models.py: recorded ids in place, naive, with beams, and on every instruction set of this CPU.

    python tests/golden_models_test.py --situ build/situ [unittest options]

They are written here, so that this holds without ../shared. Needs numpy and onnx (`make python`).
"""
import json

import golden
import golden_models
from cli_case import CliTest, Run, main
from cli_test import built_isas, cpu_has


class GoldenTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        golden_models.write(cls.folder)
        cls.cases = [case for folder in sorted(cls.folder.iterdir()) for case in golden.read_cases(folder)]

    def check(self, case, beams, *options, **environment):
        run = Run("run", *case.arguments(beams), *options, **environment)
        self.assertEqual((run.code, run.err), (0, ""), run)
        answer = json.loads(run.out)
        self.assertTrue(case.holds(answer["output_ids"], beams), run)
        if "--naive" not in options:
            self.assertEqual(answer["bytes_copied_per_token"], 0)

    def test_there_are_ten(self):
        self.assertEqual(len(self.cases), 10)
        self.assertLess(sum(f.stat().st_size for f in self.folder.rglob("*") if f.is_file()), 1_000_000)

    def test_in_place_and_naive(self):
        for case in self.cases:
            for options in ((), ("--naive",), ("--chunk", 2)):
                with self.subTest(case.folder.name, options=options):
                    self.check(case, 1, *options)

    def test_beams(self):
        asked = [case for case in self.cases if case.beams]
        self.assertGreater(len(asked), 6)
        for case in asked:
            with self.subTest(case.folder.name):
                self.check(case, 3)

    def test_instruction_sets(self):
        for isa in filter(cpu_has, built_isas(self.cases[0].folder)):
            for case in self.cases:
                with self.subTest(case.folder.name, isa=isa):
                    self.check(case, 1, SITU_ISA=isa)


if __name__ == "__main__":
    main()
