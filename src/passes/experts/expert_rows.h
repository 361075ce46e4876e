// What experts compute of rows that were found for each of them, as a computation of all tokens and their choices.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/params.h"
#include "ops/quantised.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"

namespace situ {

// The NonZero of each expert: its mask is [S] (flat), [S, choices] or, by choice, [choices, S].
struct RowFacts {
  std::vector<ValueId> nonzeros;
  int64_t choices = 1;
  bool by_choice = false, flat = false;
};

// All rows of a step, as NonZero would find them.
struct GridRows {
  std::vector<int64_t> tokens, choice;
  Tensor coordinates;
};
GridRows grid_rows(const RowFacts& facts, int64_t tokens);

// Rows of all experts: [S, rest], the same for each choice of a token, or per choice [S, choices, rest].
struct LiftedRows {
  ValueId value = kNoValue;
  bool per_choice = false;
  std::vector<int64_t> rest;
};

// Whether pack_experts lays matrices of this form out (it looks at operands, too).
bool packs_expert(const QuantisedMatrix& w);

// Nodes that compute rows of experts.
class ExpertEmitter {
 public:
  // index [S, choices], of so many experts.
  ExpertEmitter(Graph& graph, Builder& builder, ValueId index, int64_t experts)
      : graph_(graph), builder_(builder), index_(index), experts_(experts) {}

  ValueId index() const { return index_; }
  int products() const { return products_; }
  // With a row for each choice.
  ValueId by_choice(const LiftedRows& rows);
  // x [.., K] times the matrix of the expert that is chosen, of floats [K, N] or, transposed, [N, K]; more attributes
  // go to last().
  LiftedRows product(const LiftedRows& x, ValueId bias, const std::vector<ValueId>& weights, const QuantisedMatrix& w,
                     bool transposed = true);
  // Adds bias [experts, N] to rows that a product has just made; false: they are no such rows.
  bool add_bias(const LiftedRows& rows, ValueId bias);

 private:
  Graph& graph_;
  Builder& builder_;
  ValueId index_;
  int64_t experts_;
  int products_ = 0;
};

class ExpertRows {
 public:
  // Nodes that read a value, and as which operand.
  using Readers = std::function<const std::vector<std::pair<int, int>>&(ValueId)>;
  // index [S, choices]; of_rows: the value has a row for each that a NonZero found.
  ExpertRows(PassContext& context, Builder& builder, RowFacts facts, ValueId index,
             std::function<bool(ValueId)> of_rows, Readers readers)
      : context_(context),
        graph_(context.graph),
        builder_(builder),
        facts_(std::move(facts)),
        emit_(context.graph, builder, index, static_cast<int64_t>(facts_.nonzeros.size())),
        of_rows_(std::move(of_rows)),
        readers_(std::move(readers)) {}

  // The same value of each expert. Nothing: they are not the same function of their rows; reason() says why.
  std::optional<LiftedRows> lift(const std::vector<ValueId>& of_experts);
  const std::string& reason() const { return reason_; }
  int products() const { return emit_.products(); }

 private:
  using Values = std::vector<ValueId>;
  const Node& producer(ValueId v) const { return graph_.nodes[static_cast<size_t>(graph_.values[v].producer)]; }
  std::optional<LiftedRows> no(const std::string& why);
  std::optional<std::vector<int64_t>> rest_of(ValueId v) const;
  bool of_expert(ValueId v) const;
  bool alike(const Values& of_experts) const;
  Values operands(const Values& of_experts, size_t i) const;
  std::optional<LiftedRows> lift_node(const Values& of_experts);
  std::optional<LiftedRows> gathered(const Values& of_experts);
  std::optional<LiftedRows> moved(const Values& of_experts);
  std::optional<LiftedRows> elementwise(const Values& of_experts);
  std::optional<LiftedRows> rowwise(const Values& of_experts);
  std::optional<LiftedRows> part(const Values& of_experts);
  std::optional<LiftedRows> product(const Values& of_experts);
  std::optional<LiftedRows> product_of_digits(const Values& of_experts);
  // -- of bytes (expert_bytes.cc)
  // DynamicQuantizeLinear of the rows of each expert: scale [S, choices, 1], and the rows that were rounded, less
  // their zero point.
  struct Rounding {
    ValueId scale = kNoValue;
    LiftedRows rows;
  };
  std::optional<Rounding> rounding(const Values& of_experts);
  ValueId over_rows_of_expert(const char* reduce, ValueId of_choices);
  Tensor bytes_by_column(const Tensor& stored) const;
  uint8_t bytes_middle(const Node& product) const;
  std::optional<LiftedRows> product_of_bytes(const Values& of_experts);
  std::optional<LiftedRows> rounded_and_back(const Values& of_experts);
  Tensor numbers_of_table(const Node& product, const QuantisedMatrix& w) const;
  ValueId constant_of(const Values& values, const std::vector<int64_t>& rest, bool* per_choice);
  ValueId stacked(const Values& values, const std::vector<int64_t>& dims);
  bool same_numbers(const Values& values) const;

  PassContext& context_;
  Graph& graph_;
  Builder& builder_;
  RowFacts facts_;
  ExpertEmitter emit_;
  std::function<bool(ValueId)> of_rows_;
  Readers readers_;
  std::map<ValueId, std::pair<Values, std::optional<LiftedRows>>> lifted_;  // by the first expert's value
  std::map<ValueId, Rounding> roundings_;                                   // by the first expert's rounded rows
  std::string reason_;
};

// 0, 1, 2, ..; of half precision exact below 2,048.
Tensor numbered(DType type, const std::vector<int64_t>& dims);

}  // namespace situ
