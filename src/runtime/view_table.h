// The views of a program's operands and results: bound anew at every step, for the symbols in their offsets, extents
// and strides. Views of calls that take one sequence at a time are bound for each part of the step as well.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/view.h"
#include "place/plan.h"

namespace situ {

class ViewTable {
 public:
  // `base`: element 0 of the home's root, but of a port. Absent operands have a view too.
  int add(const Home& home, DType type, std::byte* base);
  int add_absent();
  const View& operator[](int i) const { return views_[static_cast<size_t>(i)]; }
  const View* at(int i) const { return views_.data() + i; }

  // Binds all views for one step. `ports`: where element 0 of each lies.
  void bind(const SymbolValues& symbols, std::span<std::byte* const> ports);

  // -- parts: consecutive tokens of a step
  struct Part {
    SymbolValues symbols;  // as if the part were a step of its own
    int64_t first_token = 0;
    std::byte* host = nullptr;  // its own integers, where add_part's `host` says
    int64_t handed_in = 0;      // bytes from where the ports lie to its own rows of them
  };
  // View `i`, whose home is `home`, is bound for each part too; its number among those that are. `host`: the values are
  // the part's own, at this offset of Part::host. `handed_in`: the part's rows of a port lie where Part::handed_in
  // says. Precondition: part_problem() (schedule/schedule.h) has none.
  int add_part(int i, const Home& home, std::byte* base, std::optional<int64_t> host, bool handed_in);
  int add_absent_part(int i);
  // After bind(), for the same step.
  void bind_parts(const std::vector<Part>& parts);
  const View* part_at(int part, int i) const {
    return part_views_.data() + static_cast<size_t>(part) * parts_.size() + static_cast<size_t>(i);
  }

 private:
  struct Expressions {
    std::vector<Dim> dims;
    std::vector<int64_t> values;
    std::unordered_map<std::string, int> known;  // by text
    int add(const Dim& dim);
    // Whether any value is another than before.
    bool evaluate(const SymbolValues& symbols);
  };
  struct Patch {
    int expression;
    int view;
    int field;  // -1: data, 0..7: dims, 8..15: strides
    std::byte* base;
    int64_t element;
  };
  struct PartView {
    int view = -1;
    bool rows = false;  // tokens of a value that the whole step has; else told by the part's symbols alone
    bool handed_in = false;
    int token_axis = -1;
    std::byte* base = nullptr;
    int64_t element = 1;
    std::optional<int64_t> host;
    int offset = -1;  // expressions; -1: as in the view of the whole step
    int dims[kMaxRank] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int strides[kMaxRank] = {-1, -1, -1, -1, -1, -1, -1, -1};
  };

  std::vector<View> views_;
  struct PortView {
    int view, port;
    int expression;  // of its offset; -1: it is `offset`
    int64_t element, offset;
  };
  std::vector<PortView> ports_;
  Expressions whole_;
  std::vector<Patch> patches_;
  std::vector<PartView> parts_;
  Expressions in_part_;
  std::vector<View> part_views_;  // [part][part view]
};

}  // namespace situ
