#include "graph/symbols.h"

#include <algorithm>

namespace situ {
namespace {

thread_local const SymbolTable* current = nullptr;

}  // namespace

const SymbolInfo& SymbolTable::info(int id) const {
  static const SymbolInfo of_file;
  const size_t i = static_cast<size_t>(id);
  return i < symbols.size() ? symbols[i] : of_file;
}

std::string SymbolTable::name(int id) const {
  const std::string& name = info(id).name;
  return name.empty() ? "s" + std::to_string(id) : name;
}

SymbolTable step_symbols(const StepLimits& limits) {
  const int64_t step = std::min(limits.tokens, limits.step);
  const int64_t past = limits.tokens == INT64_MAX ? INT64_MAX : limits.tokens - 1;
  SymbolTable table;
  table.symbols = {
      {"S", Provenance::kStep, 1, step},
      {"P", Provenance::kSequence, 0, past},
      {"L", Provenance::kStep, 1, step},
      {"E", Provenance::kSource, 1, limits.source},
      // Places. Shapes never depend on them.
      {"W", Provenance::kSequence},
      {"source_slot", Provenance::kSource},
      {"read_slot", Provenance::kSequence},
      {"write_slot", Provenance::kSequence},
      // Sequences that share a step are on the same side of every number that the graph compares T with.
      {"T", Provenance::kStep, 1, limits.tokens},
      {"N", Provenance::kStep},
  };
  if (limits.tokens != INT64_MAX) table.relations.push_back({{{kSymS, 1}, {kSymP, 1}}, 1, limits.tokens});
  table.relations.push_back({{{kSymS, 1}, {kSymL, -1}}, 0, step});  // tokens whose logits nobody wants
  return table;
}

const SymbolTable& current_symbols() {
  static const SymbolTable unlimited = step_symbols();
  return current ? *current : unlimited;
}

ScopedSymbols::ScopedSymbols(SymbolTable table) : table_(std::move(table)), outer_(current) { current = &table_; }
ScopedSymbols::~ScopedSymbols() { current = outer_; }

}  // namespace situ
