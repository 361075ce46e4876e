#include "runtime/view_table.h"

#include <algorithm>

namespace situ {

int ViewTable::Expressions::add(const Dim& dim) {
  const auto [at, is_new] = known.emplace(dim.str(), static_cast<int>(dims.size()));
  if (is_new) {
    dims.push_back(dim);
    values.push_back(INT64_MIN);
  }
  return at->second;
}

bool ViewTable::Expressions::evaluate(const SymbolValues& symbols) {
  bool changed = false;
  for (size_t e = 0; e < dims.size(); ++e) {
    const int64_t v = dims[e].eval(symbols);
    changed = changed || v != values[e];
    values[e] = v;
  }
  return changed;
}

int ViewTable::add_absent() {
  views_.emplace_back();
  return static_cast<int>(views_.size()) - 1;
}

int ViewTable::add(const Home& home, DType type, std::byte* base) {
  const int index = static_cast<int>(views_.size());
  View v;
  v.type = type;
  v.rank = static_cast<int>(home.view.dims.size());
  const int64_t element = std::max<int64_t>(1, dtype_bytes(type));
  const Dim& offset = home.view.offset;
  if (home.region == RegionKind::kPort)
    ports_.push_back({index, home.root, offset.is_const() ? -1 : whole_.add(offset), element,
                      offset.is_const() ? offset.value() : 0});
  else if (offset.is_const())
    v.data = base + offset.value() * element;
  else
    patches_.push_back({whole_.add(offset), index, -1, base, element});
  for (int i = 0; i < v.rank; ++i) {
    const Dim &d = home.view.dims[static_cast<size_t>(i)], &s = home.view.strides[static_cast<size_t>(i)];
    if (d.is_const())
      v.dims[i] = d.value();
    else
      patches_.push_back({whole_.add(d), index, i, nullptr, 0});
    if (s.is_const())
      v.strides[i] = s.value();
    else
      patches_.push_back({whole_.add(s), index, kMaxRank + i, nullptr, 0});
  }
  views_.push_back(v);
  return index;
}

void ViewTable::bind(const SymbolValues& symbols, std::span<std::byte* const> ports) {
  const bool changed = whole_.evaluate(symbols);
  for (const PortView& p : ports_) {
    const int64_t offset = p.expression < 0 ? p.offset : whole_.values[static_cast<size_t>(p.expression)];
    views_[static_cast<size_t>(p.view)].data = ports[static_cast<size_t>(p.port)] + offset * p.element;
  }
  if (!changed) return;
  for (const Patch& p : patches_) {
    View& v = views_[static_cast<size_t>(p.view)];
    const int64_t value = whole_.values[static_cast<size_t>(p.expression)];
    if (p.field < 0)
      v.data = p.base + value * p.element;
    else if (p.field < kMaxRank)
      v.dims[p.field] = value;
    else
      v.strides[p.field - kMaxRank] = value;
  }
}

int ViewTable::add_part(int i, const Home& home, std::byte* base, std::optional<int64_t> host, bool handed_in) {
  PartView p;
  p.view = i;
  p.base = base;
  p.element = std::max<int64_t>(1, dtype_bytes(views_[static_cast<size_t>(i)].type));
  p.rows = !host && is_of_step(home.region);
  p.handed_in = handed_in;
  const SymView& v = home.view;
  for (size_t a = 0; a < v.dims.size(); ++a) {
    const Dim &d = v.dims[a], &s = v.strides[a];
    if (p.rows && p.token_axis < 0 && d == Dim::symbol(kSymS)) p.token_axis = static_cast<int>(a);
    if (!p.rows && !s.is_const()) p.strides[a] = in_part_.add(s);
    if (!d.is_const()) p.dims[a] = in_part_.add(d);
  }
  if (host)
    p.host = *host + v.offset.value() * p.element;
  else if (!p.rows)
    p.offset = in_part_.add(v.offset);
  parts_.push_back(p);
  return static_cast<int>(parts_.size()) - 1;
}

int ViewTable::add_absent_part(int i) {
  PartView p;
  p.view = i;
  parts_.push_back(p);
  return static_cast<int>(parts_.size()) - 1;
}

void ViewTable::bind_parts(const std::vector<Part>& parts) {
  part_views_.resize(parts.size() * parts_.size());
  View* next = part_views_.data();
  for (const Part& part : parts) {
    in_part_.evaluate(part.symbols);
    auto value = [&](int e) { return in_part_.values[static_cast<size_t>(e)]; };
    for (const PartView& p : parts_) {
      View& v = *next++ = views_[static_cast<size_t>(p.view)];
      for (int a = 0; a < v.rank; ++a) {
        if (p.dims[a] >= 0) v.dims[a] = value(p.dims[a]);
        if (p.strides[a] >= 0) v.strides[a] = value(p.strides[a]);
      }
      if (p.host)
        v.data = part.host + *p.host;
      else if (p.offset >= 0)
        v.data = p.base + value(p.offset) * p.element;
      else if (p.handed_in)
        v.data += part.handed_in;
      else if (p.token_axis >= 0)
        v.data += part.first_token * v.strides[p.token_axis] * p.element;
    }
  }
}

}  // namespace situ
