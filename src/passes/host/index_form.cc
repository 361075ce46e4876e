#include "passes/host/index_form.h"

#include <algorithm>

#include "passes/context/binding.h"
#include "passes/context/part.h"

namespace situ {
namespace {

constexpr int kMaxDepth = 400;              // of a host subgraph
constexpr int64_t kMostNumbers = 1 << 24;   // of a table: a bias of 64 heads for 131,072 distances either way
constexpr int64_t kMostConstant = 1 << 20;  // of a constant that is read as a table with axes of its own

bool integer(DType t) { return t == DType::kI64 || t == DType::kI32; }

// A table's dims when its value is broadcast to `rank` axes.
std::vector<int64_t> widened(const Tensor& table, size_t rank) {
  std::vector<int64_t> dims = table.dims();
  dims.insert(dims.begin() + 1, rank + 1 - dims.size(), 1);
  return dims;
}

// An integer that is the same at every index and step.
std::optional<int64_t> number(const IndexForm& x, DType type) {
  if (!integer(type)) return std::nullopt;
  if (x.uniform()) return x.table.to_i64()[0];
  if (x.has_table() || !x.offset.is_const()) return std::nullopt;
  const bool flat = std::all_of(x.steps.begin(), x.steps.end(), [](int64_t s) { return s == 0; });
  return flat ? std::optional(x.offset.value()) : std::nullopt;
}

bool within(int64_t x, int64_t most) { return x >= -most && x <= most; }

// Numbers of a line might wrap: those of 32 bits, and those of 64 where steps or what positions are multiplied by and
// added to are so large that sums and products of a few lines are not known to fit.
bool may_wrap(const IndexForm& line, DType type) {
  const bool wide = type == DType::kI64;
  const int64_t most_step = wide ? 1 << 30 : 1024, most_number = int64_t{1} << (wide ? 60 : 30);
  if (std::any_of(line.steps.begin(), line.steps.end(), [&](int64_t s) { return !within(s, most_step); })) return true;
  std::vector<int64_t> numbers;
  const bool bounded = !wide || !line.offset.piecewise_linear(&numbers) || line.offset.is_const();
  if (bounded)
    return !within(line.offset.lower_bound(), most_number) || !within(line.offset.upper_bound(), most_number);
  return std::any_of(numbers.begin(), numbers.end(), [&](int64_t n) { return !within(n, most_step); });
}

bool not_below(const IndexForm& line, int64_t least) {
  return std::all_of(line.steps.begin(), line.steps.end(), [](int64_t s) { return s >= 0; }) &&
         line.offset.lower_bound() >= least;
}

// The same line up to its sign and a number: what tables are of.
struct Base {
  IndexForm line;
  int64_t sign = 1, shift = 0;  // the line it was = sign * base + shift
};
Base base_of(const IndexForm& line) {
  Base b{line, 1, 0};
  for (size_t a = line.steps.size(); a-- > 0;)
    if (line.steps[a] != 0) {
      b.sign = line.steps[a] < 0 ? -1 : 1;
      break;
    }
  for (int64_t& s : b.line.steps) s *= b.sign;
  SymbolValues zero;
  zero[kSymL] = zero[kSymE] = 0;
  b.shift = line.offset.eval(zero);
  b.line.offset = (line.offset - Dim(b.shift)) * Dim(b.sign);
  return b;
}

// The axis of `in` that each axis of `out` is, where axes of one element come and go; -1: it is one of those.
std::optional<std::vector<int>> same_axes(const Shape& in, const Shape& out) {
  std::vector<int> from(out.size(), -1);
  size_t i = 0;
  for (size_t o = 0; o < out.size(); ++o) {
    if (out[o] == Dim(1)) continue;
    while (i < in.size() && in[i] == Dim(1)) ++i;
    if (i == in.size() || !(in[i] == out[o])) return std::nullopt;
    from[o] = static_cast<int>(i++);
  }
  while (i < in.size() && in[i] == Dim(1)) ++i;
  return i == in.size() ? std::optional(from) : std::nullopt;
}

}  // namespace

std::optional<IndexForm> IndexForms::find(ValueId v) {
  if (v == kNoValue || !prober_.known(v) || !graph_.values[v].info.ranked) return std::nullopt;
  if (const auto it = known_.find(v); it != known_.end()) return it->second;
  if (depth_ > kMaxDepth) return std::nullopt;
  ++depth_;
  std::optional<IndexForm> form = derive(v);
  --depth_;
  if (form) form = without_single_axes(std::move(*form), v);
  const DType type = graph_.values[v].info.type;
  if (form && !form->has_table() && !number(*form, type) && may_wrap(*form, type)) form.reset();
  return known_[v] = std::move(form);
}

IndexForm IndexForms::without_single_axes(IndexForm x, ValueId v) const {
  for (size_t a = 0; a < x.steps.size(); ++a)
    if (shape(v)[a] == Dim(1)) x.steps[a] = 0;
  return x;
}

std::optional<IndexForm> IndexForms::derive(ValueId v) {
  const Value& value = graph_.values[v];
  if (value.constant.present()) {
    if (value.constant.count() > kMostConstant || value.constant.count() == 0 || value.constant.rank() + 1 > kMaxRank)
      return std::nullopt;
    std::vector<int64_t> dims = value.constant.dims();
    dims.insert(dims.begin(), 1);
    return IndexForm{std::vector<int64_t>(dims.size() - 1), Dim(0), value.constant.reshaped(dims)};
  }
  if (value.info.content) return of_content(value);
  if (const auto role = binding_.inputs.find(v); role != binding_.inputs.end()) {
    if (role->second != InputRole::kPositions || !integer(value.info.type) || value.info.shape.empty())
      return std::nullopt;
    IndexForm line{std::vector<int64_t>(value.info.shape.size()), Dim::symbol(kSymP), {}};
    line.steps.back() = 1;
    return line;
  }
  return value.producer < 0 ? std::nullopt : of_node(graph_.nodes[static_cast<size_t>(value.producer)], v);
}

// Integers of a shape or of a range that was folded: evenly apart.
std::optional<IndexForm> IndexForms::of_content(const Value& value) const {
  const std::vector<Dim>& dims = *value.info.content;
  if (!integer(value.info.type) || dims.empty() || value.info.shape.size() > 1) return std::nullopt;
  IndexForm line{std::vector<int64_t>(value.info.shape.size()), dims[0], {}};
  if (dims.size() == 1) return line;
  const Dim step = dims[1] - dims[0];
  for (size_t i = 1; i < dims.size(); ++i)
    if (!step.is_const() || !(dims[i] - dims[i - 1] == step)) return std::nullopt;
  line.steps[0] = step.value();
  return line;
}

std::optional<IndexForm> IndexForms::of_node(const Node& n, ValueId v) {
  if (!n.def || !n.domain.empty() || n.out[0] != v) {
    if (n.def && n.is("Split")) return moved(n, v);
    return std::nullopt;
  }
  if (n.is("Range") || n.is("ConstantOfShape") || n.is("CumSum")) return generated(n, v);
  if (n.is("Gather")) return gathered(n, v);
  if (n.def->placement == Placement::kView) return moved(n, v);
  if (n.def->placement == Placement::kElementwise && !n.is("PRelu")) return elementwise(n, v);
  return std::nullopt;
}

std::optional<IndexForm> IndexForms::generated(const Node& n, ValueId v) {
  const size_t rank = shape(v).size();
  if (n.is("Range")) {
    const auto start = content_of(graph_, n, 0), step = content_of(graph_, n, 2);
    if (!integer(graph_.values[v].info.type) || !start || !step || start->size() != 1 || step->size() != 1 ||
        !(*step)[0].is_const())
      return std::nullopt;
    return IndexForm{{(*step)[0].value()}, (*start)[0], {}};
  }
  if (n.is("ConstantOfShape")) {
    const Tensor one = Tensor::vector_i64(std::vector<int64_t>(rank + 1, 1));
    Result<std::vector<Tensor>> r = evaluator_.node(n, {one});
    return r.is_ok() ? std::optional(IndexForm{std::vector<int64_t>(rank), Dim(0), (*r)[0]}) : std::nullopt;
  }
  // CumSum of one number: 1, 2, 3, .. times that.
  const std::optional<IndexForm> x = find(n.in[0]);
  const auto axis = content_of(graph_, n, 1);
  const std::optional<int64_t> summand = x ? number(*x, graph_.values[n.in[0]].info.type) : std::nullopt;
  if (!summand || !axis || axis->size() != 1 || !(*axis)[0].is_const() || n.attr_int("reverse", 0) != 0)
    return std::nullopt;
  const int64_t a = (*axis)[0].value(), at = a < 0 ? a + static_cast<int64_t>(rank) : a;
  if (at < 0 || at >= static_cast<int64_t>(rank)) return std::nullopt;
  IndexForm line{std::vector<int64_t>(rank), Dim(n.attr_int("exclusive", 0) != 0 ? 0 : *summand), {}};
  line.steps[static_cast<size_t>(at)] = *summand;
  return line;
}

// Axis o of the result is axis from[o] of x, or (-1) one along which x has one element.
std::optional<IndexForm> IndexForms::rearranged(const IndexForm& x, const std::vector<int>& from) const {
  IndexForm y{std::vector<int64_t>(from.size()), x.offset, x.table};
  int last = -1;
  std::vector<int64_t> dims{x.has_table() ? x.table.dims()[0] : 1};
  for (size_t o = 0; o < from.size(); ++o) {
    const size_t i = static_cast<size_t>(from[o]);
    if (from[o] >= 0) y.steps[o] = x.steps[i];
    dims.push_back(from[o] >= 0 && x.has_table() ? x.table.dims()[i + 1] : 1);
    if (dims.back() == 1) continue;
    if (from[o] < last) return std::nullopt;  // axes of the table change places
    last = from[o];
  }
  if (!x.has_table()) return y;
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  if (count != x.table.count() || static_cast<int>(dims.size()) > kMaxRank) return std::nullopt;
  y.table = x.table.reshaped(dims);
  return y;
}

std::optional<IndexForm> IndexForms::moved(const Node& n, ValueId v) {
  const std::optional<IndexForm> x = find(n.in[0]);
  if (!x) return std::nullopt;
  const Shape &in = shape(n.in[0]), &out = shape(v);
  if (x->uniform() && out.size() + 1 <= kMaxRank)
    return IndexForm{std::vector<int64_t>(out.size()), Dim(0),
                     x->table.reshaped(std::vector<int64_t>(out.size() + 1, 1))};
  if (n.is("Slice") || n.is("Split")) return sliced(n, v, *x);
  std::vector<int> from;
  if (n.is("Transpose")) {
    for (int64_t a : n.permutation(in.size())) from.push_back(static_cast<int>(a));
  } else if (n.is("Expand")) {
    if (out.size() < in.size()) return std::nullopt;
    from.assign(out.size() - in.size(), -1);
    for (size_t i = 0; i < in.size(); ++i) {
      if (!(in[i] == Dim(1)) && !(in[i] == out[from.size()])) return std::nullopt;
      from.push_back(in[i] == Dim(1) ? -1 : static_cast<int>(i));
    }
  } else {
    const auto same = same_axes(in, out);
    if (!same) return std::nullopt;
    from = *same;
  }
  return rearranged(*x, from);
}

// Where the part begins is where the line does.
std::optional<IndexForm> IndexForms::sliced(const Node& n, ValueId v, IndexForm x) {
  const Shape& in = shape(n.in[0]);
  auto cut = [&](size_t axis, const Dim& begin, int64_t step) {
    if (axis >= in.size() || step < 1 || (x.has_table() && x.table.dims()[axis + 1] != 1)) return false;
    if (begin.lower_bound() < 0 || (in[axis] - begin).lower_bound() < 0) return false;
    x.offset = x.offset + begin * Dim(x.steps[axis]);
    return !__builtin_mul_overflow(x.steps[axis], step, &x.steps[axis]);
  };
  if (n.is("Split")) {
    const size_t o = static_cast<size_t>(std::find(n.out.begin(), n.out.end(), v) - n.out.begin());
    const std::optional<AxisPart> part = part_of(graph_, n, o);
    return part && cut(part->axis, part->begin, 1) ? std::optional(x) : std::nullopt;
  }
  const auto starts = content_of(graph_, n, 1), axes = content_of(graph_, n, 3), steps = content_of(graph_, n, 4);
  if (!starts || (n.has_input(3) && (!axes || !shape_is_const(*axes) || axes->size() != starts->size())) ||
      (n.has_input(4) && (!steps || !shape_is_const(*steps) || steps->size() != starts->size())))
    return std::nullopt;
  for (size_t i = 0; i < starts->size(); ++i) {
    const int64_t given = axes ? (*axes)[i].value() : static_cast<int64_t>(i);
    const size_t axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(in.size()) : given);
    if (axis >= in.size()) return std::nullopt;
    const Dim& start = (*starts)[i];
    if (start == Dim(0) && in[axis] == shape(v)[axis]) continue;
    if (!cut(axis, start.upper_bound() < 0 ? in[axis] + start : start, steps ? (*steps)[i].value() : 1))
      return std::nullopt;
  }
  return x;
}

// Numbers of the lines first_ .. last_.
std::optional<IndexForm> IndexForms::tabulated(IndexForm line) const {
  if (line.has_table()) return line;
  const Base base = base_of(line);
  const size_t rank = line.steps.size();
  if (rank + 1 > kMaxRank) return std::nullopt;
  const bool flat = std::all_of(line.steps.begin(), line.steps.end(), [](int64_t s) { return s == 0; });
  if (flat && !line.offset.is_const()) return std::nullopt;  // a number of the step
  std::vector<int64_t> dims(rank + 1, 1);
  dims[0] = flat ? 1 : last_ - first_ + 1;
  IndexForm y = base.line;
  y.table = Tensor::allocate(DType::kI64, dims);
  int64_t* numbers = y.table.view().as<int64_t>();
  for (int64_t i = 0; i < dims[0]; ++i) numbers[i] = flat ? line.offset.value() : base.sign * (first_ + i) + base.shift;
  if (flat) y.offset = Dim(0);
  return y;
}

std::optional<IndexForm> IndexForms::gathered(const Node& n, ValueId v) {
  const Tensor& data = graph_.values[n.in[0]].constant;
  const int64_t axis = n.attr_int("axis", 0);
  const std::optional<IndexForm> at = find(n.in[1]);
  if (!data.present() || data.rank() < 1 || !at || (axis != 0 && axis != -data.rank())) return std::nullopt;
  const std::optional<IndexForm> index = tabulated(*at);
  if (!index || index->table.count() != index->table.dims()[0]) return std::nullopt;
  const int64_t lines = index->table.count(), width = data.count() / std::max<int64_t>(1, data.dims()[0]);
  if (lines * width > kMostNumbers || shape(v).size() + 1 > kMaxRank) return std::nullopt;
  Result<std::vector<Tensor>> r = evaluator_.node(n, {data, index->table.reshaped({lines})});
  if (!r.is_ok()) return std::nullopt;
  IndexForm y{index->steps, index->offset, {}};
  y.steps.resize(shape(v).size());
  std::vector<int64_t> dims(index->steps.size() + 1, 1);
  dims[0] = lines;
  for (int64_t d = 1; d < data.rank(); ++d) dims.push_back(data.dims()[static_cast<size_t>(d)]);
  if (dims.size() != y.steps.size() + 1) return std::nullopt;
  y.table = (*r)[0].reshaped(dims);
  return y;
}

// Sums, differences and multiples of lines are lines.
std::optional<IndexForm> IndexForms::line_of_lines(const Node& n, const std::vector<std::optional<IndexForm>>& x,
                                                   size_t rank) {
  auto type = [&](size_t i) { return graph_.values[n.in[i]].info.type; };
  if (!integer(graph_.values[n.out[0]].info.type)) return std::nullopt;
  if (n.is("Cast") && integer(type(0)) && !x[0]->has_table()) return *x[0];
  // No number of the line is below the other operand, or nothing chooses the other one.
  if (n.is("Max") && x.size() == 2)
    for (const size_t i : {size_t{0}, size_t{1}})
      if (const std::optional<int64_t> least = number(*x[1 - i], type(1 - i));
          least && !x[i]->has_table() && x[i]->steps.size() == rank && not_below(*x[i], *least))
        return *x[i];
  if (n.is("Where") && x.size() == 3 && x[0]->uniform()) {
    const std::optional<IndexForm>& taken = x[x[0]->table.to_i64()[0] != 0 ? 1 : 2];
    if (!taken->has_table() && taken->steps.size() == rank) return *taken;
  }
  if (n.is("Neg") && !x[0]->has_table()) {
    IndexForm y{std::vector<int64_t>(rank), Dim(0) - x[0]->offset, {}};
    for (size_t a = 0; a < rank; ++a) y.steps[a] = -x[0]->steps[a];
    return y;
  }
  if (x.size() != 2 || (!n.is("Add") && !n.is("Sub") && !n.is("Mul"))) return std::nullopt;
  const std::optional<int64_t> left = number(*x[0], type(0)), right = number(*x[1], type(1));
  if ((x[0]->has_table() && !left) || (x[1]->has_table() && !right)) return std::nullopt;
  if (n.is("Mul") && !left && !right) return std::nullopt;
  IndexForm y{std::vector<int64_t>(rank), Dim(0), {}};
  auto add = [&](const IndexForm& line, const std::optional<int64_t>& value, int64_t factor) {
    y.offset = y.offset + (value ? Dim(*value) : line.offset) * Dim(factor);
    bool fits = true;
    for (size_t a = 0; a < line.steps.size() && !value; ++a) {
      int64_t by = 0, &step = y.steps[rank - line.steps.size() + a];
      fits = !__builtin_mul_overflow(factor, line.steps[a], &by) && !__builtin_add_overflow(step, by, &step) && fits;
    }
    return fits;
  };
  const bool fits = n.is("Mul") ? add(left ? *x[1] : *x[0], left ? right : left, left ? *left : *right)
                                : add(*x[0], left, 1) && add(*x[1], right, n.is("Sub") ? -1 : 1);
  return fits ? std::optional(y) : std::nullopt;
}

std::optional<IndexForm> IndexForms::elementwise(const Node& n, ValueId v) {
  const size_t rank = shape(v).size();
  std::vector<std::optional<IndexForm>> x;
  for (ValueId in : n.in) {
    x.push_back(in == kNoValue ? std::nullopt : find(in));
    if (in != kNoValue && !x.back()) return std::nullopt;
  }
  if (x.empty() || !x[0] || rank + 1 > kMaxRank) return std::nullopt;
  if (auto line = line_of_lines(n, x, rank); line && !may_wrap(*line, graph_.values[v].info.type)) return line;
  IndexForm y{std::vector<int64_t>(rank), Dim(0), {}};
  bool has_base = false;
  std::vector<Tensor> operands;
  std::vector<int64_t> extents(rank + 1, 1);
  for (size_t i = 0; i < x.size(); ++i) {
    if (!x[i]) {
      operands.emplace_back();
      continue;
    }
    const DType type = graph_.values[n.in[i]].info.type;
    std::optional<IndexForm> t = tabulated(*x[i]);
    if (!t || t->steps.size() > rank) return std::nullopt;
    if (t->table.type() != type) {  // positions of 32 bits
      Node cast;
      cast.op = "Cast";
      cast.opset = 13;
      cast.in = {0};
      cast.out = {0};
      cast.set_int("to", static_cast<int64_t>(type));
      cast.def = find_op("", "Cast", 13);
      Result<std::vector<Tensor>> r = evaluator_.node(cast, {t->table});
      if (!r.is_ok()) return std::nullopt;
      t->table = (*r)[0];
    }
    if (n.is("Clip") && i > 0) {  // limits are scalars
      if (!t->uniform()) return std::nullopt;
      operands.push_back(t->table.reshaped({}));
      continue;
    }
    t->steps.insert(t->steps.begin(), rank - t->steps.size(), 0);
    if (t->table.dims()[0] > 1) {
      if (has_base && (t->steps != y.steps || !(t->offset == y.offset))) return std::nullopt;
      has_base = true;
      y.steps = t->steps;
      y.offset = t->offset;
    }
    const std::vector<int64_t> dims = widened(t->table, rank);
    for (size_t a = 0; a <= rank; ++a) extents[a] = std::max(extents[a], dims[a]);
    operands.push_back(t->table.reshaped(dims));
  }
  int64_t count = 1;
  for (size_t a = 0; a <= rank; ++a) {
    if (a > 0 && extents[a] > 1 && y.steps[a - 1] != 0) return std::nullopt;  // an axis of both
    if (__builtin_mul_overflow(count, extents[a], &count) || count > kMostNumbers) return std::nullopt;
  }
  Result<std::vector<Tensor>> r = evaluator_.node(n, operands);
  if (!r.is_ok() || (*r)[0].dims() != extents) return std::nullopt;
  y.table = (*r)[0];
  return y;
}

}  // namespace situ
