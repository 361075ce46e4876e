// Where the time of traced steps goes, by kernel: for both halves of `situ bench`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "situ/tools.h"

namespace situ::cli {

struct KernelRow {
  std::string kind;
  double calls = 0, us = 0, bytes = 0;  // us: the mean of the threads, so that rows and waiting add up to the steps
};

struct KernelTable {
  std::vector<KernelRow> rows;        // by time, longest first
  double steps_us = 0, waits_us = 0;  // waits: what threads did not spend in kernels
};

// Everything divided by `units`: the tokens, or the runs, that were traced.
KernelTable kernel_table(const Trace& trace, double units);
// The rows, with their shares of `of_us`.
void print(const KernelTable& table, double of_us);
nlohmann::ordered_json to_json(const std::vector<KernelRow>& rows);

}  // namespace situ::cli
