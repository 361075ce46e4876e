// Symbols: the numbers that shapes and offsets depend on. A table says of each what it is called, where its value comes
// from, between what it lies, and how it hangs together with others; Dims (dim.h) are folded by that table. None is
// special by its name or its number.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace situ {

// Ids of the symbols that step_symbols declares. A file's own dim_param names get ids from kFirstFileSymbol on
// (Graph::symbol).
enum SymbolId : int {
  kSymS = 0,      // new tokens; of an encoder: rows of its source
  kSymP = 1,      // tokens already in the state
  kSymL = 2,      // tokens whose logits are wanted, the last ones of the step
  kSymE = 3,      // rows of the encoder's output that the sequence reads
  kSymW = 4,      // slot that the first new row is written to, in an append or a source space; >= P in the former
  kSymX = 5,      // first slot of the sequence's source
  kSymRead = 6,   // slot of a whole space that this step reads ...
  kSymWrite = 7,  // ... and the one that it writes, another one
  kSymT =
      8,  // tokens that the sequence will have behind what it is fed at once; >= S + P (passes/host/find_switches.cc)
  kSymN = 9,  // elements that a step finds (NonZero of data): only until experts are recognised
  kFirstFileSymbol = 16,
};
// Names of a file; more are refused by the importer. Real exports that name each extent of each cache have 6 a layer.
constexpr int kMostFileSymbols = 4096;

// What a symbol's value belongs to: whoever shares that shares the value.
enum class Provenance {
  kStep,      // one for all sequences of a step
  kSequence,  // another one for each sequence
  kSource,    // another one for each source, which several sequences may read
  kFile,      // a name of the file without a meaning yet: 0 or more
};

struct SymbolInfo {
  std::string name;
  Provenance from = Provenance::kFile;
  int64_t least = 0, most = INT64_MAX;
};

// least <= sum(factor * symbol) <= most, at every step; factors are 1 or -1.
struct SymbolRelation {
  std::vector<std::pair<int, int64_t>> terms;
  int64_t least, most;
};

struct SymbolTable {
  std::vector<SymbolInfo> symbols;  // by id; further ids are a file's
  std::vector<SymbolRelation> relations;

  const SymbolInfo& info(int id) const;  // a file's, without a name, where the table does not have it
  std::string name(int id) const;        // "s17" without one
};

// How far steps go: no sequence is longer than `tokens` (P + S <= tokens), no step than `step` (S <= step), no source
// than `source` (E <= source).
struct StepLimits {
  int64_t tokens = INT64_MAX, step = INT64_MAX, source = INT64_MAX;
};

// The symbols whose values the runtime gives at each step.
SymbolTable step_symbols(const StepLimits& limits = {});

// The table of the innermost ScopedSymbols of this thread; step_symbols() without limits outside of any.
const SymbolTable& current_symbols();

// While it lives, Dims made on this thread are folded by this table: with P + S <= 1024, min(1024, P + S) is P + S. Who
// runs the graph must keep steps within it.
class ScopedSymbols {
 public:
  explicit ScopedSymbols(SymbolTable table);
  explicit ScopedSymbols(const StepLimits& limits) : ScopedSymbols(step_symbols(limits)) {}
  ~ScopedSymbols();
  ScopedSymbols(const ScopedSymbols&) = delete;
  ScopedSymbols& operator=(const ScopedSymbols&) = delete;

 private:
  SymbolTable table_;
  const SymbolTable* outer_;
};

// Values of the symbols at one step: 0 where none was set, but 1 for L and E, which are never less.
class SymbolValues {
 public:
  SymbolValues() { step_[kSymL] = step_[kSymE] = 1; }
  int64_t operator[](int id) const {
    const size_t i = static_cast<size_t>(id);
    return i < step_.size() ? step_[i] : i - step_.size() < file_.size() ? file_[i - step_.size()] : 0;
  }
  int64_t& operator[](int id) {
    const size_t i = static_cast<size_t>(id);
    if (i < step_.size()) return step_[i];
    if (i - step_.size() >= file_.size()) file_.resize(i - step_.size() + 1);
    return file_[i - step_.size()];
  }

 private:
  std::array<int64_t, kFirstFileSymbol> step_ = {};
  std::vector<int64_t> file_;  // empty at a step: a file's names have become other symbols by then
};

}  // namespace situ
