// What a recurrence may be, and what it would compute: passes/recognise/recognise_recurrence.cc compares that with a
// graph.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "base/tensor.h"
#include "graph/graph.h"

namespace situ {

// A value with a row for each token, whatever the order of its axes: [S, width].
struct TokenRows {
  ValueId value = kNoValue;
  int axis = 0;  // of the tokens
  int64_t width = 0;
};

// How the numbers of a state are told apart, in the order in which they are stored.
struct RecurrenceLayout {
  int64_t heads = 0, keys = 0, values = 0;
  bool columns_first = false;  // [H, V, K]
  bool operator==(const RecurrenceLayout&) const = default;
};

// Rows of ones, where each head has one key.
constexpr TokenRows kOnes{kNoValue, 0, 1};

// What stands for a recurrence. Rows may be none: kNoValue.
struct Recurrence : RecurrenceLayout {
  TokenRows q, k, v, decay, beta, skipped;  // skipped: D times it is added to the result
  std::vector<float> factors;               // D, by head
  float scale = 1;
  int64_t q_heads() const { return q.width / keys; }
  int64_t k_heads() const { return k.width / keys; }
  int64_t results() const { return std::max(q_heads(), heads); }
};

// The numbers of one evaluation, of rows as [S, width].
using TokenNumbers = std::map<ValueId, std::vector<float>>;

// The rows of a tensor whose tokens are along `axis`, as [S, width].
std::vector<float> by_token(const Tensor& t, int axis);
const float* row_of(const TokenNumbers& n, const TokenRows& rows, int64_t token);

// What the numbers of a key are multiplied by.
double decay_of(const Recurrence& m, const TokenNumbers& n, int64_t token, int64_t head, int64_t key);

// A state [H, K, V] as doubles, and back to the order of the file.
class RecurrentState {
 public:
  RecurrentState(const Recurrence& m, const std::vector<float>& stored) : m_(m), h_(stored.begin(), stored.end()) {}
  // One head of it.
  RecurrentState(const Recurrence& m, const std::vector<float>& stored, int64_t head)
      : m_(m),
        first_(head),
        h_(stored.begin() + head * m.keys * m.values, stored.begin() + (head + 1) * m.keys * m.values) {}
  double& at(int64_t head, int64_t key, int64_t value) { return h_[index(head, key, value)]; }
  const std::vector<double>& stored() const { return h_; }

 private:
  size_t index(int64_t head, int64_t key, int64_t value) const {
    return static_cast<size_t>(m_.columns_first ? ((head - first_) * m_.values + value) * m_.keys + key
                                                : ((head - first_) * m_.keys + key) * m_.values + value);
  }
  const Recurrence& m_;
  const int64_t first_ = 0;
  std::vector<double> h_;
};

// One head of one token; `known`: scratch of a column for each value.
void take_token(const Recurrence& m, const TokenNumbers& n, int64_t token, int64_t head, RecurrentState* h,
                std::vector<double>* known);
// y of one token from the state behind it: h' q, without scale and skip.
std::vector<double> result_of(const Recurrence& m, const float* q, RecurrentState* h);

}  // namespace situ
