#include "cli/bench_kernels.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

namespace situ::cli {

KernelTable kernel_table(const Trace& trace, double units) {
  KernelTable table;
  std::map<std::string, KernelRow> rows;
  const double threads = trace.threads();
  for (int t = 0; t < trace.threads(); ++t)
    for (const TraceEvent& e : trace.events(t)) {
      const Trace::Name& name = trace.names()[static_cast<size_t>(e.name)];
      const double us = static_cast<double>(e.end - e.begin) / 1000.0 / units;
      if (name.kind == "token") {  // the step itself, of thread 0
        table.steps_us += us;
        continue;
      }
      KernelRow& row = rows[name.kind];
      row.us += us / threads;
      if (t > 0) continue;
      row.calls += 1 / units;
      row.bytes += static_cast<double>(name.bytes) / units;
    }
  table.waits_us = table.steps_us;
  for (auto& [kind, row] : rows) {
    row.kind = kind;
    table.waits_us -= row.us;
    table.rows.push_back(row);
  }
  std::sort(table.rows.begin(), table.rows.end(), [](const KernelRow& a, const KernelRow& b) { return a.us > b.us; });
  return table;
}

void print(const KernelTable& table, double of_us) {
  std::printf("%-28s %8s %12s %8s %14s %8s\n", "kernel", "calls", "us", "share", "weight bytes", "GB/s");
  for (const KernelRow& r : table.rows)
    std::printf("%-28s %8.0f %12.1f %7.1f%% %14.0f %8.1f\n", r.kind.c_str(), r.calls, r.us, 100 * r.us / of_us, r.bytes,
                r.us > 0 ? r.bytes / r.us / 1000 : 0);
  std::printf("%-28s %8s %12.1f %7.1f%%\n", "(waiting for each other)", "", table.waits_us,
              100 * table.waits_us / of_us);
}

nlohmann::ordered_json to_json(const std::vector<KernelRow>& rows) {
  nlohmann::ordered_json j = nlohmann::ordered_json::array();
  for (const KernelRow& r : rows)
    j.push_back({{"kernel", r.kind}, {"calls", r.calls}, {"us", r.us}, {"weight_bytes", r.bytes}});
  return j;
}

}  // namespace situ::cli
