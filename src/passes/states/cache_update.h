// Caches of a fixed size: told by what a step makes of them, whatever operators say so.
//
//   after = ScatterND(before, positions, rows)          after = Where(any(hot), hot^T rows, before)
//   after = TensorScatter(before, rows, first)          after = before * (1 - any(hot)) + hot^T rows
//   after = ScatterElements(before, positions, rows)    ..      with hot = positions == 0 .. N - 1
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "passes/context/pass_context.h"
#include "passes/host/probe.h"
#include "passes/host/value_classes.h"

namespace situ {

struct CacheUpdate {
  ValueId past = kNoValue;         // the graph's input
  ValueId present = kNoValue;      // its output
  ValueId before = kNoValue;       // the past, moved (transposed, say): what the update reads
  ValueId after = kNoValue;        // like `before`, but for the rows that the step writes
  ValueId rows = kNoValue;         // of the step's tokens
  int node = -1;                   // that gives `after`
  std::set<int> nodes;             // between `before`, `rows` and `after`
  std::vector<ValueId> positions;  // what the host knows of where rows go
  int axis = 0, past_axis = 0;     // of the places, in `after` and in `past`
  std::vector<int> moved;          // where each axis of the past is in `after`; -1: one element, or nowhere
  std::vector<int64_t> order;      // axes of `rows`, as they follow each other in `after`
  int64_t places = 0;              // N
  // Token t is written at place t % N, and at t where places end: there the cache is full.
  bool circle = false;
  // The same, but rows move on by those of each step: the last token is always written at the last place.
  bool rolls = false;
};

// Where an axis goes in what a node that only moves makes of its operand 0: transposes, casts between floats, axes of
// one element, and Reshapes that leave it whole. Nothing: the node is another one, or it does not.
std::optional<int> moved_axis(const Graph& graph, const Node& n, int axis);

class CacheUpdates {
 public:
  CacheUpdates(PassContext& context);
  // How `present` continues the state `past`; nothing: as no cache of a fixed size.
  std::optional<CacheUpdate> find(ValueId past, ValueId present);

 private:
  bool collect(CacheUpdate& u);
  bool expand(CacheUpdate& u, ValueId v);
  ValueId moved_from(ValueId v) const;
  bool holds_rows(const CacheUpdate& u, ValueId v) const;
  std::string key_of(const CacheUpdate& u) const;
  bool follow_past(CacheUpdate& u) const;
  bool keeps_numbers(const CacheUpdate& u, int64_t tokens, int64_t past, const std::vector<int64_t>& index);
  bool goes_on(const CacheUpdate& u);
  bool verify(CacheUpdate& u);
  bool indexes_rows(const CacheUpdate& u) const;
  bool lay_out(CacheUpdate& u);
  bool may_roll(const CacheUpdate& u) const;
  bool writes(const CacheUpdate& u, int64_t tokens, int64_t past);
  std::optional<std::vector<int64_t>> written(const CacheUpdate& u, int64_t tokens, int64_t past);
  std::optional<Tensor> numbers(ValueId like, const std::vector<int64_t>& dims, int64_t divisor, int64_t modulus);
  std::optional<Tensor> filled(ValueId like, const std::vector<int64_t>& dims, float number);
  std::optional<Tensor> in_type_of(ValueId like, const Tensor& x);

  PassContext& context_;
  const Graph& graph_;
  Prober prober_;
  const ValueClasses classes_;
  std::map<std::string, std::optional<CacheUpdate>> known_;  // layers are alike
};

}  // namespace situ
