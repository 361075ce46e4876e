// The verifier: runs the plan on tags instead of numbers. Every element that a kernel computes gets a tag of
// its own; what view operators and Concats mean is taken from the naive interpreter, run on tags. Then
// each step of the plan reads and writes a shadow memory, byte by byte, at the addresses of its views: a
// kernel must find exactly the tags that the graph says its operand holds. An overlap of live values, a
// wrong stride, a state row that was overwritten: all show up as a foreign tag.
#include <algorithm>
#include <unordered_map>

#include "eval/interpreter.h"
#include "place/plan.h"

namespace situ {
namespace {

constexpr int64_t kFirstSlot = 5;  // the simulated sequence does not begin at slot 0
constexpr int64_t kSourceRows = 7;
// Views of constants larger than this are checked against their bounds only.
constexpr int64_t kMaxConstantTags = 1 << 16;

class Verifier {
 public:
  Verifier(const Graph& graph, const Binding& binding, const Plan& plan)
      : graph_(graph), binding_(binding), plan_(plan), pool_(1), evaluator_(pool_), executed_(graph.nodes.size(), 0) {
    for (const Step& s : plan.steps)
      if (!s.move) executed_[static_cast<size_t>(s.node)] = 1;
  }

  Status run(const std::vector<int64_t>& tokens) {
    int64_t past = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      symbols_ = SymbolValues{};
      symbols_[kSymS] = tokens[i];
      symbols_[kSymP] = past;
      symbols_[kSymW] = past + kFirstSlot;
      symbols_[kSymT] = past + tokens[i];
      symbols_[kSymRead] = static_cast<int64_t>(i % 2);
      symbols_[kSymWrite] = static_cast<int64_t>(1 - i % 2);
      symbols_[kSymE] = kSourceRows;
      symbols_[kSymX] = kFirstSlot;
      SITU_RETURN_IF_ERROR(step(past == 0).with_context("step of " + std::to_string(tokens[i]) + " tokens after " +
                                                        std::to_string(past)));
      past += tokens[i];
    }
    return Status::ok();
  }

 private:
  using Tags = std::vector<int64_t>;
  const std::string& name(ValueId v) const { return graph_.values[v].name; }
  std::vector<int64_t> dims(ValueId v) const { return shape_eval(graph_.values[v].info.shape, symbols_); }
  int64_t count(ValueId v) const {
    int64_t n = 1;
    for (int64_t d : dims(v)) n *= d;
    return n;
  }

  Tags fresh(int64_t n) {
    Tags t(static_cast<size_t>(n));
    for (int64_t& x : t) x = ++last_tag_;
    return t;
  }

  Status step(bool first) {
    forget(RegionKind::kArena);
    forget(RegionKind::kIo);
    forget(RegionKind::kPort);
    meaning_.clear();
    for (const StateLayout& s : plan_.states) {
      if (s.pair.past == kNoValue) continue;
      Tags& held = state_tags_[s.pair.past];
      if (first) {
        held = fresh(count(s.pair.past));
        SITU_RETURN_IF_ERROR(write(s.pair.past, plan_.values[s.pair.past], held));
      }
      meaning_[s.pair.past] = held;
    }
    for (const Root& r : plan_.io) {
      const bool fed = graph_.values[r.value].info.content || binding_.inputs.count(r.value);
      if (!fed) continue;
      meaning_[r.value] = fresh(count(r.value));
      Home h{RegionKind::kIo, static_cast<int>(&r - plan_.io.data()), SymView::contiguous(r.dims)};
      SITU_RETURN_IF_ERROR(write(r.value, h, meaning_[r.value]));
    }
    for (const Root& r : plan_.ports) {
      if (graph_.values[r.value].producer >= 0) continue;  // an output
      meaning_[r.value] = fresh(count(r.value));
      const Home h{RegionKind::kPort, static_cast<int>(&r - plan_.ports.data()), SymView::contiguous(r.dims)};
      SITU_RETURN_IF_ERROR(write(r.value, h, meaning_[r.value]));
    }
    size_t next = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (; next < plan_.steps.size() && plan_.steps[next].node == static_cast<int>(n); ++next) {
        const Step& s = plan_.steps[next];
        const bool goes_on = next + 1 < plan_.steps.size() && plan_.steps[next + 1].same_rows;
        if (!s.same_rows && goes_on) {
          group_ = next;
          before_group_ = shadow_;
        }
        SITU_RETURN_IF_ERROR(s.move ? move(s) : kernel(n));
        if (s.same_rows && !goes_on) SITU_RETURN_IF_ERROR(row_by_row(next));
      }
      if (!executed_[n]) SITU_RETURN_IF_ERROR(mean(n));
    }
    if (next != plan_.steps.size()) return Status::error("steps are not in the order of the nodes");
    if (binding_.logits != kNoValue) SITU_RETURN_IF_ERROR(expect(binding_.logits, "after the step"));
    for (const StateLayout& s : plan_.states) {
      if (s.pair.present != kNoValue) {
        SITU_RETURN_IF_ERROR(expect(s.pair.present, "after the step"));
        state_tags_[s.pair.past] = meaning_[s.pair.present];
      } else if (s.pair.past != kNoValue) {
        SITU_RETURN_IF_ERROR(expect(s.pair.past, "after the step"));  // nothing may have touched it
      }
    }
    return Status::ok();
  }

  void forget(RegionKind region) {
    std::erase_if(shadow_, [&](const auto& e) { return (e.first >> 56) == static_cast<uint64_t>(region); });
  }

  // A kernel reads its operands and writes new values.
  Status kernel(size_t n) {
    const Node& node = graph_.nodes[n];
    std::unordered_map<uint64_t, ValueId> reads;  // bytes of operands
    for (ValueId v : node.in) {
      if (v == kNoValue) continue;
      SITU_RETURN_IF_ERROR(expect(v, "read by " + node.label()));
      const Home& h = plan_.values[v];
      if (h.region == RegionKind::kWeights) continue;
      SITU_RETURN_IF_ERROR(each(v, h, [&](uint64_t address, int64_t size, size_t) {
        for (int64_t b = 0; b < size; ++b) reads[address + static_cast<uint64_t>(b)] = v;
      }));
    }
    for (ValueId v : node.out) {
      if (v == kNoValue) continue;
      SITU_RETURN_IF_ERROR(check_overlap(node, v, reads));
      meaning_[v] = fresh(count(v));
      SITU_RETURN_IF_ERROR(write(v, plan_.values[v], meaning_[v]));
    }
    return Status::ok();
  }

  // Steps group_ to `last` once more, as threads take them that do not wait for each other: the last row through all of
  // them, then the one before. Each step must find what it found when it took all rows.
  Status row_by_row(size_t last) {
    shadow_ = std::move(before_group_);
    for (row_ = symbols_[kSymS] - 1; row_ >= 0; --row_)
      for (size_t s = group_; s <= last; ++s) {
        const Node& node = graph_.nodes[static_cast<size_t>(plan_.steps[s].node)];
        for (ValueId v : node.in)
          if (v != kNoValue)
            SITU_RETURN_IF_ERROR(expect(v, "row " + std::to_string(row_) + " read by " + node.label()));
        for (ValueId v : node.out)
          if (v != kNoValue) SITU_RETURN_IF_ERROR(write(v, plan_.values[v], meaning_[v]));
      }
    row_ = -1;
    return Status::ok();
  }

  // Threads write outputs while others still read operands: they may share bytes only element by element.
  Status check_overlap(const Node& node, ValueId out, const std::unordered_map<uint64_t, ValueId>& reads) {
    ValueId shared = kNoValue;
    SITU_RETURN_IF_ERROR(each(out, plan_.values[out], [&](uint64_t address, int64_t size, size_t) {
      for (int64_t b = 0; b < size && shared == kNoValue; ++b)
        if (auto it = reads.find(address + static_cast<uint64_t>(b));
            it != reads.end() && !same_view(node, out, it->second))
          shared = it->second;
    }));
    if (shared == kNoValue) return Status::ok();
    return Status::error(node.label() + ": output '" + name(out) + "' lies over its operand '" + name(shared) + "'");
  }
  bool same_view(const Node& node, ValueId out, ValueId in) const {
    const Home &a = plan_.values[out], &b = plan_.values[in];
    for (size_t i = 0; i < node.in.size(); ++i)
      if (node.in[i] == in && !may_overwrite(node.def->placement, i)) return false;
    if (node.out[0] != out || a.region != b.region || a.root != b.root) return false;
    const std::vector<int64_t> dims = shape_eval(a.view.dims, symbols_), s = shape_eval(a.view.strides, symbols_),
                               t = shape_eval(b.view.strides, symbols_);
    if (dims != shape_eval(b.view.dims, symbols_) || a.view.offset.eval(symbols_) != b.view.offset.eval(symbols_))
      return false;
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i] != 1 && s[i] != t[i]) return false;
    return true;
  }

  // A visible copy carries whatever tags it finds; its readers check them.
  Status move(const Step& s) {
    Tags tags;
    SITU_RETURN_IF_ERROR(each(s.from, s.from_home, [&](uint64_t address, int64_t, size_t) {
      auto it = shadow_.find(address);
      tags.push_back(it == shadow_.end()
                         ? (s.from_home.region == RegionKind::kWeights ? static_cast<int64_t>(address) : -1)
                         : it->second.first);
    }));
    return write(s.to, s.to_home, tags);
  }

  // What a node that is not executed means: the interpreter moves tags as it would move numbers.
  Status mean(size_t n) {
    const Node& node = graph_.nodes[n];
    const bool host = std::all_of(node.out.begin(), node.out.end(), [&](ValueId v) {
      return v == kNoValue || graph_.values[v].info.content || graph_.values[v].constant.present();
    });
    if (host) return Status::ok();
    if (node.is("Select", "situ")) return Status::ok();  // constants, bound-checked where they are read
    if (!node.def || (!node.def->view && node.def->placement != Placement::kConcat))
      return Status::error(node.label() + " is never executed");
    std::vector<Tensor> operands;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const bool data = i == 0 || node.def->placement == Placement::kConcat;
      Result<Tensor> t = node.in[i] == kNoValue ? Result<Tensor>(Tensor())
                         : data                 ? tags_of(node.in[i])
                                                : constant_of(node.in[i]);
      if (!t.is_ok()) return t.status();
      if (data && node.in[i] != kNoValue && !t->present()) return Status::ok();  // a view of a large constant
      operands.push_back(*t);
    }
    Result<std::vector<Tensor>> results = evaluator_.node(node, operands);
    if (!results.is_ok()) return results.status();
    for (size_t o = 0; o < node.out.size(); ++o)
      if (node.has_output(o)) meaning_[node.out[o]] = (*results)[o].to_i64();
    return Status::ok();
  }

  Result<Tensor> tags_of(ValueId v) {
    auto it = meaning_.find(v);
    if (it == meaning_.end() && graph_.values[v].constant.present()) {
      const Tensor& c = graph_.values[v].constant;
      if (c.count() > kMaxConstantTags || dtype_bytes(c.type()) == 0) return Tensor();
      Tags tags;
      const Home h{RegionKind::kWeights, v, SymView::contiguous(graph_.values[v].info.shape)};
      SITU_RETURN_IF_ERROR(
          each(v, h, [&](uint64_t address, int64_t, size_t) { tags.push_back(static_cast<int64_t>(address)); }));
      it = meaning_.emplace(v, std::move(tags)).first;
    }
    if (it == meaning_.end()) {
      if (plan_.values[v].region == RegionKind::kWeights) return Tensor();
      return Status::error("'" + name(v) + "' is used before it has a value");
    }
    return Tensor::vector_i64(it->second).reshaped(dims(v));
  }

  Result<Tensor> constant_of(ValueId v) {
    const Value& value = graph_.values[v];
    if (value.constant.present()) return value.constant;
    if (!value.info.content) return Status::error("'" + value.name + "' should be known on the host");
    Tensor t = Tensor::vector_i64(shape_eval(*value.info.content, symbols_));
    return value.info.shape.empty() ? t.reshaped({}) : t;
  }

  Status expect(ValueId v, const std::string& where) {
    const Home& h = plan_.values[v];
    if (h.region == RegionKind::kNone) return Status::error("'" + name(v) + "' has no place, " + where);
    if (shape_eval(h.view.dims, symbols_) != dims(v))
      return Status::error("'" + name(v) + "' " + shape_str(graph_.values[v].info.shape) + " is placed as " +
                           shape_str(h.view.dims) + ", " + where);
    auto it = meaning_.find(v);
    if (h.region == RegionKind::kWeights && dtype_bytes(graph_.values[v].info.type) == 0)
      return Status::ok();  // packed below a byte: never a view
    if (h.region == RegionKind::kWeights && it == meaning_.end()) return each(v, h, [](uint64_t, int64_t, size_t) {});
    if (it == meaning_.end()) return Status::error("'" + name(v) + "' has no value, " + where);
    std::string wrong;
    const bool constant = h.region == RegionKind::kWeights;
    SITU_RETURN_IF_ERROR(each(v, h, [&](uint64_t address, int64_t size, size_t i) {
      const int64_t want = i < it->second.size() ? it->second[i] : -1;
      for (int64_t b = 0; b < size && wrong.empty(); ++b) {
        auto at = shadow_.find(address + static_cast<uint64_t>(b));
        const bool same = constant ? static_cast<int64_t>(address) == want
                                   : at != shadow_.end() && at->second == std::make_pair(want, b);
        if (!same)
          wrong = "element " + std::to_string(i) + " of '" + name(v) + "' " + shape_str(graph_.values[v].info.shape) +
                  " in " + region_name(h.region) + " holds another value, " + where;
      }
    }));
    if (wrong.empty() && static_cast<size_t>(count(v)) != it->second.size())
      wrong = "'" + name(v) + "' has " + std::to_string(count(v)) + " elements where " +
              std::to_string(it->second.size()) + " are meant, " + where;
    return wrong.empty() ? Status::ok() : Status::error(wrong);
  }

  Status write(ValueId v, const Home& h, const Tags& tags) {
    // What the caller hands in no kernel writes.
    const bool port =
        h.region == RegionKind::kPort &&
        (graph_.values[v].producer < 0 || graph_.values[plan_.ports[static_cast<size_t>(h.root)].value].producer >= 0);
    if (h.region != RegionKind::kArena && h.region != RegionKind::kState && h.region != RegionKind::kIo && !port)
      return Status::error("'" + name(v) + "' is written to " + region_name(h.region));
    return each(v, h, [&](uint64_t address, int64_t size, size_t i) {
      for (int64_t b = 0; b < size; ++b)
        shadow_[address + static_cast<uint64_t>(b)] = {i < tags.size() ? tags[i] : -1, b};
    });
  }

  // Calls f(address, element bytes, number of the element) for every element of a view in order, of row_ alone if one
  // is chosen; checks that it stays in its region.
  template <typename F>
  Status each(ValueId v, const Home& h, F f) {
    const int64_t size = std::max<int64_t>(1, dtype_bytes(graph_.values[v].info.type));
    int64_t base = 0, limit = 0;
    bounds_of(h, &base, &limit);
    const std::vector<int64_t> extent = shape_eval(h.view.dims, symbols_),
                               stride = shape_eval(h.view.strides, symbols_);
    int64_t total = 1;
    for (int64_t d : extent) total *= d;
    const int64_t offset = h.view.offset.eval(symbols_);
    std::vector<int64_t> index(extent.size(), 0);
    const bool by_row = row_ >= 0 && h.region != RegionKind::kWeights && extent.size() >= 2 &&
                        extent[extent.size() - 2] == symbols_[kSymS];
    for (int64_t k = 0; k < total; ++k) {
      int64_t element = offset;
      for (size_t i = 0; i < index.size(); ++i) element += index[i] * stride[i];
      if ((element < 0 && h.region != RegionKind::kWeights) || (limit >= 0 && (element + 1) * size > limit))
        return Status::error("'" + name(v) + "' leaves its " + region_name(h.region) + " block: element " +
                             std::to_string(element));
      const uint64_t root =
          h.region == RegionKind::kState || h.region == RegionKind::kWeights || h.region == RegionKind::kPort
              ? static_cast<uint64_t>(h.root) << 40
              : 0;
      if (!by_row || index[index.size() - 2] == row_)
        f((static_cast<uint64_t>(h.region) << 56) + root + static_cast<uint64_t>(base + element * size), size,
          static_cast<size_t>(k));
      for (size_t i = index.size(); i-- > 0;) {
        if (++index[i] < extent[i]) break;
        index[i] = 0;
      }
    }
    return Status::ok();
  }

  // First byte and extent of the block; -1: not bounded here.
  void bounds_of(const Home& h, int64_t* base, int64_t* limit) const {
    *limit = -1;
    if (h.region == RegionKind::kArena) {
      *base = plan_.arena[static_cast<size_t>(h.root)].offset;
      *limit = plan_.arena[static_cast<size_t>(h.root)].bytes;
    } else if (h.region == RegionKind::kIo) {
      *base = plan_.io[static_cast<size_t>(h.root)].offset;
      *limit = plan_.io[static_cast<size_t>(h.root)].bytes;
    } else if (h.region == RegionKind::kPort) {
      *limit = plan_.ports[static_cast<size_t>(h.root)].bytes;
    } else if (h.region == RegionKind::kWeights && h.view.offset.is_const()) {
      *limit = graph_.values[static_cast<ValueId>(h.root)].constant.bytes();
    }
  }

  const Graph& graph_;
  const Binding& binding_;
  const Plan& plan_;
  ThreadPool pool_;
  Evaluator evaluator_;
  std::vector<char> executed_;
  SymbolValues symbols_;
  int64_t last_tag_ = 0;
  std::unordered_map<ValueId, Tags> meaning_;                                // what each value holds in this step
  std::unordered_map<ValueId, Tags> state_tags_;                             // what each past input holds
  using Shadow = std::unordered_map<uint64_t, std::pair<int64_t, int64_t>>;  // byte -> (tag, byte of the element)
  Shadow shadow_;
  // -- a row group: which step it begins with, what memory held then, and the row that its steps take; -1: all
  size_t group_ = 0;
  Shadow before_group_;
  int64_t row_ = -1;
};

}  // namespace

Status verify_plan(const Graph& graph, const Binding& binding, const Plan& plan, const std::vector<int64_t>& tokens) {
  return Verifier(graph, binding, plan).run(tokens).with_context("placement");
}

}  // namespace situ
