#include "passes/host/by_length.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "passes/context/binding.h"
#include "passes/host/turning_points.h"

namespace situ {
namespace {

constexpr size_t kMostTurns = 16;          // tokens are computed anew at each
constexpr int64_t kEveryLength = 1 << 20;  // contexts whose lengths are all looked at
constexpr int64_t kFewNumbers = 64;        // of a value that is looked at for all lengths,
constexpr int64_t kManyNumbers = 1 << 16;  // and for few
constexpr int64_t kMostHeld = 256 << 20;   // bytes of all that is looked at for all lengths
constexpr int kMostInARow = 400;           // one behind the other
constexpr size_t kFirstTurns = kMostTurns + 1;

// Steps that end a sequence of so many tokens.
std::vector<std::pair<int64_t, int64_t>> steps_to(int64_t length, Phase phase) {
  constexpr int64_t kMostTokens = 1 << 17;
  if (phase == Phase::kFirst) return {{length, 0}};
  std::vector<std::pair<int64_t, int64_t>> steps{{1, length - 1}};
  if (phase == Phase::kDecode) return steps;
  if (length > 2) steps.emplace_back(3, length - 3);
  if (length <= kMostTokens) steps.emplace_back(length, 0);
  return steps;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.dims() == b.dims() && a.contiguous() && b.contiguous() &&
         std::equal(a.view().data, a.view().data + a.bytes(), b.view().data);
}

Node node_of(const char* op, size_t operands) {
  Node n;
  n.op = op;
  n.opset = 13;
  n.def = find_op("", op, 13);
  n.in.resize(operands);
  n.out = {0};
  n.set_int("axis", 0);
  return n;
}

// Without ones in front.
std::vector<int64_t> trimmed(std::vector<int64_t> dims) {
  dims.erase(dims.begin(), std::find_if(dims.begin(), dims.end(), [](int64_t d) { return d != 1; }));
  return dims;
}

// What gives the number that it is given, where that is one.
bool keeps_one(const Node& n) {
  static const std::set<std::string> kReduces{"ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd"};
  return n.domain.empty() && n.def &&
         (n.def->placement == Placement::kView || n.op == "Gather" || kReduces.count(n.op) ||
          (n.op == "Concat" && n.in.size() == 1));
}

}  // namespace

const Tensor& ByLength::at(int64_t length) const {
  return values[static_cast<size_t>(std::upper_bound(turns.begin(), turns.end(), length) - turns.begin())];
}

Dim ByLength::of(const Dim& length) const {
  Dim number = values[0].to_i64()[0];
  for (size_t i = 0; i < turns.size(); ++i)
    number = dim_select(dim_less(length, turns[i]), number, Dim(values[i + 1].to_i64()[0]));
  return number;
}

Dim ByLength::stage(const Dim& length) const {
  Dim number = 0;
  for (size_t i = 0; i < turns.size(); ++i)
    number = dim_select(dim_less(length, turns[i]), number, Dim(static_cast<int64_t>(i) + 1));
  return number;
}

Result<Tensor> stacked(Evaluator& evaluator, const std::vector<Tensor>& values) {
  std::vector<Tensor> rows;
  for (const Tensor& t : values) {
    std::vector<int64_t> dims = t.dims();
    dims.insert(dims.begin(), 1);
    rows.push_back(t.reshaped(dims));
  }
  Result<std::vector<Tensor>> all = evaluator.node(node_of("Concat", rows.size()), rows);
  if (!all.is_ok()) return all.status();
  return (*all)[0];
}

LengthValues::LengthValues(const Graph& graph, Prober& prober, Evaluator& evaluator, Phase phase, int64_t context)
    : graph_(graph),
      prober_(prober),
      evaluator_(evaluator),
      phase_(phase),
      context_(std::max<int64_t>(1, context)),
      looked_at_(std::min(context_, kEveryLength)) {}

const ByLength* LengthValues::few(ValueId v) {
  const Form& f = form(v, 0);
  return f.few ? &*f.few : nullptr;
}

std::vector<int64_t> LengthValues::often(ValueId v) { return form(v, 0).first_turns; }

const LengthValues::Form& LengthValues::form(ValueId v, int depth) {
  if (const auto known = forms_.find(v); known != forms_.end()) return known->second;
  Form made = make(v, depth);
  return forms_[v] = std::move(made);
}

LengthValues::Form LengthValues::make(ValueId v, int depth) {
  if (depth > kMostInARow || !prober_.changes(v) || !has_fixed_shape(v)) return {};
  const auto& content = graph_.values[v].info.content;
  if (content) return content->size() == 1 ? from_content(v) : Form{};
  const Node* n = graph_.producer(v);
  if (!n || n->out.size() != 1) return from_steps(v);
  bool all = false, other = false;
  for (const ValueId x : n->in) {
    if (x == kNoValue || prober_.fixed(x)) continue;
    const Form& f = form(x, depth + 1);
    all = all || f.all.present();
    other = other || (!f.few && !f.all.present());
  }
  Form found;
  if (!other) found = all ? from_all(v, *n, depth) : from_stages(v, *n, depth);
  return found.few || !found.first_turns.empty() ? found : from_steps(v);
}

bool LengthValues::has_fixed_shape(ValueId v) const {
  const ValueInfo& info = graph_.values[v].info;
  return info.ranked && shape_is_const(info.shape) && shape_count(info.shape).value() > 0 &&
         shape_count(info.shape).value() <= kManyNumbers;
}

// A number that is another one at every few lengths is no stage of anything.
size_t LengthValues::most_turns(ValueId v) const {
  if (graph_.values[v].info.type == DType::kBool) return kMostTurns;
  return std::clamp<size_t>(static_cast<size_t>(context_ / 4), 1, kMostTurns);
}

std::optional<Tensor> LengthValues::fixed(ValueId v) {
  const Tensor& constant = graph_.values[v].constant;
  const Result<Tensor> t = constant.present() ? Result<Tensor>(constant) : prober_.host_value(v, 1, 1);
  return t.is_ok() ? std::optional(*t) : std::nullopt;
}

LengthValues::Form LengthValues::settled(ByLength found, ValueId v) const {
  Form f;
  if (found.turns.size() <= most_turns(v)) {
    f.few = std::move(found);
  } else {
    found.turns.resize(std::min(found.turns.size(), kFirstTurns));
    f.first_turns = std::move(found.turns);
  }
  return f;
}

// From operands that change at few lengths.
LengthValues::Form LengthValues::from_stages(ValueId v, const Node& n, int depth) {
  std::set<int64_t> lengths{1};
  for (const ValueId x : n.in)
    if (x != kNoValue && !prober_.fixed(x))
      lengths.insert(form(x, depth).few->turns.begin(), form(x, depth).few->turns.end());
  ByLength found;
  for (const int64_t length : lengths) {
    std::vector<Tensor> operands;
    for (const ValueId x : n.in) {
      if (x == kNoValue) {
        operands.emplace_back();
        continue;
      }
      const std::optional<Tensor> t = prober_.fixed(x) ? fixed(x) : std::optional(form(x, depth).few->at(length));
      if (!t) return {};
      operands.push_back(*t);
    }
    const Result<std::vector<Tensor>> result = evaluator_.node(n, operands);
    if (!result.is_ok() || !(*result)[0].contiguous()) return {};
    if (!found.values.empty() && same(found.values.back(), (*result)[0])) continue;
    if (!found.values.empty()) found.turns.push_back(length);
    found.values.push_back((*result)[0]);
  }
  return settled(std::move(found), v);
}

// `all`: [lengths, numbers].
LengthValues::Form LengthValues::of_numbers(ValueId v, const Tensor& all) {
  if (!all.contiguous() || all.type() != graph_.values[v].info.type || all.bytes() % looked_at_ != 0) return {};
  const std::vector<int64_t> dims = shape_values(graph_.values[v].info.shape);
  const int64_t row = all.bytes() / looked_at_;
  const std::byte* rows = all.view().data;
  ByLength found;
  for (int64_t i = 0; i < looked_at_ && found.turns.size() < kFirstTurns; ++i) {
    if (i > 0 && std::equal(rows + i * row, rows + (i + 1) * row, rows + (i - 1) * row)) continue;
    if (i > 0) found.turns.push_back(i + 1);
    found.values.push_back(Tensor::borrow(all.type(), dims, rows + i * row, all.owner()));
  }
  Form f = settled(std::move(found), v);
  if (f.few || (held_.count(all.view().data) == 0 && held_bytes_ + all.bytes() > kMostHeld)) return f;
  if (held_.insert(all.view().data).second) held_bytes_ += all.bytes();
  f.all = all;
  return f;
}

// Numbers `more` than the lengths.
LengthValues::Form LengthValues::count_from(ValueId v, int64_t more) {
  Tensor& all = counts_[{graph_.values[v].info.type, more}];
  if (!all.present()) {
    std::vector<int64_t> numbers;
    for (int64_t length = 1; length <= looked_at_; ++length) numbers.push_back(length + more);
    const Result<Tensor> cast = evaluator_.cast(Tensor::vector_i64(numbers), graph_.values[v].info.type);
    if (!cast.is_ok()) return {};
    all = cast->reshaped({looked_at_, 1});
  }
  return of_numbers(v, all);
}

// An integer or bool that shapes tell.
LengthValues::Form LengthValues::from_content(ValueId v) {
  const Dim d = (*graph_.values[v].info.content)[0], length = Dim::symbol(kSymT);
  const Dim told = phase_ == Phase::kDecode  ? d.substitute(kSymS, 1).substitute(kSymP, length - Dim(1))
                   : phase_ == Phase::kFirst ? d.substitute(kSymP, 0).substitute(kSymS, length)
                                             : d.substitute(kSymP, length - Dim::symbol(kSymS));
  for (const int symbol : told.symbols())
    if (symbol != kSymT) return from_steps(v);
  if (const Dim more = told - length; more.is_const()) return count_from(v, more.value());
  const auto at = [&](int64_t n) {
    SymbolValues symbols;
    symbols[kSymT] = n;
    return told.eval(symbols);
  };
  std::vector<int64_t> numbers;
  for (int64_t n = 1; n <= looked_at_; ++n) numbers.push_back(at(n));
  const Result<Tensor> all = evaluator_.cast(Tensor::vector_i64(numbers), graph_.values[v].info.type);
  return all.is_ok() ? beyond(of_numbers(v, all->reshaped({looked_at_, 1})), v) : Form{};
}

// From operands of which some are another one at every few lengths.
LengthValues::Form LengthValues::from_all(ValueId v, const Node& n, int depth) {
  const std::vector<int64_t> dims = shape_values(graph_.values[v].info.shape);
  const int64_t count = shape_count(graph_.values[v].info.shape).value();
  const auto varies = [&](ValueId x) { return x != kNoValue && !prober_.fixed(x); };
  const ValueId first = n.in[0];
  if (keeps_one(n) && count == 1 && varies(first) && shape_count(graph_.values[first].info.shape) == Dim(1) &&
      std::none_of(n.in.begin() + 1, n.in.end(), varies)) {
    const std::optional<Tensor> all = at_every_length(first, depth);
    return all ? of_numbers(v, *all) : Form{};
  }
  if (!n.def || count > kFewNumbers) return {};
  std::vector<Tensor> operands;
  if (n.is("Gather") && first != kNoValue && !varies(first) && n.attr_int("axis", 0) == 0) {
    const std::optional<Tensor> data = fixed(first), index = at_every_length(n.in[1], depth);
    if (!data || data->rank() < 1 || data->dims()[0] * count != data->count() || index->count() != looked_at_)
      return {};
    operands = {data->reshaped({data->dims()[0], count}), index->reshaped({looked_at_})};
  } else if (n.def->placement == Placement::kElementwise) {
    for (const ValueId x : n.in) {
      const std::optional<Tensor> t = x == kNoValue ? Tensor() : varies(x) ? at_every_length(x, depth) : fixed(x);
      if (!t) return {};
      const int64_t numbers = x == kNoValue ? 1 : varies(x) ? t->count() / looked_at_ : t->count();
      if (numbers != 1 && (numbers != count || trimmed(shape_values(graph_.values[x].info.shape)) != trimmed(dims)))
        return {};
      if (x == kNoValue || varies(x))
        operands.push_back(*t);
      else
        operands.push_back(t->reshaped(numbers == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{1, numbers}));
    }
  } else {
    return {};
  }
  const Result<std::vector<Tensor>> result = evaluator_.node(n, operands);
  if (!result.is_ok() || (*result)[0].count() != looked_at_ * count) return {};
  return beyond(of_numbers(v, (*result)[0]), v);
}

// [lengths, numbers]; precondition: v has a form.
std::optional<Tensor> LengthValues::at_every_length(ValueId v, int depth) {
  const Form& f = form(v, depth);
  if (f.all.present()) return f.all;
  const Result<Tensor> rows = stacked(evaluator_, f.few->values);
  if (!rows.is_ok()) return std::nullopt;
  const std::vector<int64_t>& turns = f.few->turns;
  std::vector<int64_t> index;
  for (int64_t length = 1, stage = 0; length <= looked_at_; ++length) {
    while (stage < std::ssize(turns) && length >= turns[static_cast<size_t>(stage)]) ++stage;
    index.push_back(stage);
  }
  const int64_t stages = std::ssize(f.few->values);
  const Result<std::vector<Tensor>> all = evaluator_.node(
      node_of("Gather", 2), {rows->reshaped({stages, rows->count() / stages}), Tensor::vector_i64(index)});
  return all.is_ok() ? std::optional((*all)[0]) : std::nullopt;
}

// Of contexts whose lengths are not all looked at: as it was found, if it is the same at all lengths that tell others.
LengthValues::Form LengthValues::beyond(Form found, ValueId v) {
  if (looked_at_ == context_ || !found.few) return found;
  const std::set<int64_t> lengths = telling_lengths(v);
  if (lengths.empty()) return {};
  for (auto at = lengths.lower_bound(looked_at_); at != lengths.end(); ++at) {
    const int64_t length = *at;
    const Result<Tensor> t =
        phase_ == Phase::kFirst ? prober_.host_value(v, length, 0) : prober_.host_value(v, 1, length - 1);
    if (!t.is_ok() || !same(*t, found.few->values.back())) return {};
  }
  return found;
}

// Lengths that tell a value at all others: at both sides of all turning points, and the shortest and longest, where the
// rule is the same in between. Empty: none do.
std::set<int64_t> LengthValues::telling_lengths(ValueId v) const {
  const TellingSteps telling = telling_steps(graph_, prober_, {v}, Phase::kAny, context_);
  std::set<int64_t> lengths;
  for (const auto& [tokens, past] : telling.steps)
    if (telling.told) lengths.insert(tokens + past);
  return lengths;
}

// From steps of lengths that tell all others: few stages, or the length and a number.
LengthValues::Form LengthValues::from_steps(ValueId v) {
  const DType type = graph_.values[v].info.type;
  bool counts = shape_count(graph_.values[v].info.shape) == Dim(1) && looked_at_ == context_ &&
                (type == DType::kI64 || type == DType::kI32 || type == DType::kF32 || type == DType::kF64);
  bool stages = true;
  double more = 0;  // than the length
  int64_t last = 0;
  ByLength found;
  for (const int64_t length : telling_lengths(v)) {
    std::optional<Tensor> here;
    for (const auto& [tokens, past] : steps_to(length, phase_)) {
      const Result<Tensor> t = prober_.host_value(v, tokens, past);
      if (!t.is_ok() || !t->contiguous() || (here && !same(*here, *t))) return {};
      here = *t;
    }
    if (counts) {
      const double above = here->to_f64()[0] - static_cast<double>(length);
      counts = last == 0 || above == more;
      more = above;
    }
    if (last == 0 || !same(found.values.back(), *here)) {
      stages = stages && (last == 0 || length == last + 1);
      if (last != 0) found.turns.push_back(length);
      found.values.push_back(*here);
    }
    last = length;
    if (!stages && !counts) return {};
  }
  if (last == 0) return {};
  if (stages && (!counts || found.turns.size() <= most_turns(v))) return settled(std::move(found), v);
  return count_from(v, static_cast<int64_t>(more));
}

}  // namespace situ
