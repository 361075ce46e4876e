#include "passes/expand/expand_einsum.h"

#include <algorithm>
#include <map>

#include "ops/einsum.h"

namespace situ {
namespace {

class EinsumWriter {
 public:
  EinsumWriter(Graph& graph, Builder& builder) : graph_(graph), builder_(builder) {}

  Status run(const Node& n) {
    std::vector<size_t> ranks;
    for (const ValueId v : n.in) ranks.push_back(graph_.values[v].info.shape.size());
    const Result<EinsumTerms> terms = einsum_terms(n.attr_string("equation", ""), ranks);
    if (!terms.is_ok()) return terms.status().with_context(n.label());
    for (size_t i = 0; i < ranks.size(); ++i)
      for (size_t a = 0; a < ranks[i]; ++a)
        extents_.emplace(terms->operands[i][a], graph_.values[n.in[i]].info.shape[a]);
    Operand so_far{n.in[0], terms->operands[0]};
    for (size_t i = 1; i < n.in.size(); ++i) {
      std::string wanted = terms->result;
      for (size_t k = i + 1; k < n.in.size(); ++k) wanted += terms->operands[k];
      Operand next{n.in[i], terms->operands[i]};
      sum_away(&so_far, wanted + next.letters);
      sum_away(&next, wanted + so_far.letters);
      so_far = join(so_far, next, wanted);
    }
    sum_away(&so_far, terms->result);
    order(so_far, terms->result, n.out[0]);
    return Status::ok();
  }

 private:
  // A value whose axes are these letters.
  struct Operand {
    ValueId value = kNoValue;
    std::string letters;
  };
  static bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

  // Letters that nothing else has and nothing wants.
  void sum_away(Operand* x, const std::string& wanted) {
    std::vector<int64_t> axes;
    std::string left;
    for (size_t a = 0; a < x->letters.size(); ++a)
      if (has(wanted, x->letters[a]))
        left += x->letters[a];
      else
        axes.push_back(static_cast<int64_t>(a));
    if (axes.empty()) return;
    const ValueId list = builder_.constant_i64(axes);
    x->value = builder_.op("ReduceSum", {x->value, list});
    builder_.last().set_int("keepdims", 0);
    x->letters = left;
  }

  void order(const Operand& x, const std::string& letters, ValueId result) {
    if (x.letters == letters) {
      builder_.op("Identity", {x.value}, result);
      return;
    }
    builder_.transpose(x.value, permutation(x.letters, letters), result);
  }
  ValueId ordered(const Operand& x, const std::string& letters) {
    return x.letters == letters ? x.value : builder_.transpose(x.value, permutation(x.letters, letters));
  }
  static std::vector<int64_t> permutation(const std::string& from, const std::string& to) {
    std::vector<int64_t> perm;
    for (const char c : to) perm.push_back(static_cast<int64_t>(from.find(c)));
    return perm;
  }

  // x with extents of 1 for the letters that it lacks.
  ValueId spread(const Operand& x, const std::string& letters) {
    std::string own;
    std::vector<int64_t> missing;
    for (size_t a = 0; a < letters.size(); ++a)
      if (has(x.letters, letters[a]))
        own += letters[a];
      else
        missing.push_back(static_cast<int64_t>(a));
    const ValueId y = ordered(x, own);
    if (missing.empty()) return y;
    const ValueId axes = builder_.constant_i64(missing);
    return builder_.op("Unsqueeze", {y, axes});
  }

  Operand join(const Operand& a, const Operand& b, const std::string& wanted) {
    std::string batch, rows, columns, summed;
    for (const char c : a.letters) (!has(b.letters, c) ? rows : has(wanted, c) ? batch : summed) += c;
    for (const char c : b.letters)
      if (!has(a.letters, c)) columns += c;
    if (summed.empty()) {
      const std::string all = batch + rows + columns;
      const ValueId x = spread(a, all), y = spread(b, all);
      return {builder_.op("Mul", {x, y}), all};
    }
    const ValueId x = matrix(ordered(a, batch + rows + summed), batch, rows, summed),
                  y = matrix(ordered(b, batch + summed + columns), batch, summed, columns);
    const ValueId product = builder_.op("MatMul", {x, y});
    const std::string all = batch + rows + columns;
    return {rows.size() == 1 && columns.size() == 1 ? product : reshape(product, all), all};
  }
  // [batch.., rows.., columns..] -> [batch.., rows, columns]
  ValueId matrix(ValueId x, const std::string& batch, const std::string& rows, const std::string& columns) {
    if (rows.size() == 1 && columns.size() == 1) return x;
    Shape shape = extents(batch);
    shape.push_back(shape_count(extents(rows)));
    shape.push_back(shape_count(extents(columns)));
    return reshape_to(x, std::move(shape));
  }
  ValueId reshape(ValueId x, const std::string& letters) { return reshape_to(x, extents(letters)); }
  ValueId reshape_to(ValueId x, Shape shape) {
    const ValueId target = builder_.new_value("shape");
    ValueInfo& info = graph_.values[target].info;
    info.type = DType::kI64;
    info.ranked = true;
    info.shape = {Dim(static_cast<int64_t>(shape.size()))};
    info.content = std::move(shape);
    return builder_.op("Reshape", {x, target});
  }
  Shape extents(const std::string& letters) const {
    Shape shape;
    for (const char c : letters) shape.push_back(extents_.at(c));
    return shape;
  }

  Graph& graph_;
  Builder& builder_;
  std::map<char, Dim> extents_;
};

}  // namespace

Status expand_einsum(Graph& graph, Builder& builder, const Node& n) { return EinsumWriter(graph, builder).run(n); }

}  // namespace situ
