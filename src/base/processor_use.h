// What the threads of this process have had of the processors.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace situ {

struct ProcessorUse {
  double ms = 0;         // of all threads together
  int64_t switches = 0;  // how often one was put aside for another process, or another thread
  int64_t faults = 0;    // pages that were touched for the first time

  static ProcessorUse now() {
    rusage all{};
    getrusage(RUSAGE_SELF, &all);
    const auto ms_of = [](const timeval& t) {
      return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
    };
    return {ms_of(all.ru_utime) + ms_of(all.ru_stime), all.ru_nivcsw, all.ru_minflt + all.ru_majflt};
  }
  ProcessorUse operator-(const ProcessorUse& before) const {
    return {ms - before.ms, switches - before.switches, faults - before.faults};
  }
};

}  // namespace situ
