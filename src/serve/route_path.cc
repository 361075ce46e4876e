#include "serve/route_path.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "serve/call.h"

namespace situ::serve {
namespace {

constexpr size_t kLongest = 100;  // of what is compared

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (!part.empty()) parts.push_back(part);
    path.remove_prefix(std::min(path.size(), part.size() + 1));
  }
  return parts;
}

int64_t shared_parts(std::string_view a, std::string_view b) {
  const std::vector<std::string_view> others = parts_of(b);
  int64_t shared = 0;
  for (const std::string_view part : parts_of(a)) shared += std::count(others.begin(), others.end(), part) > 0 ? 1 : 0;
  return shared;
}

// Of edits that make `right` of `given`: what is missing costs less than what is wrong or too much.
int64_t distance(std::string_view given, std::string_view right) {
  constexpr int64_t kMissing = 1, kWrong = 3;
  std::vector<int64_t> row(right.size() + 1);
  for (size_t j = 0; j <= right.size(); ++j) row[j] = static_cast<int64_t>(j) * kMissing;
  for (const char c : given) {
    int64_t before = row[0];
    row[0] += kWrong;
    for (size_t j = 1; j <= right.size(); ++j) {
      const int64_t replaced = before + (c == right[j - 1] ? 0 : kWrong);
      before = row[j];
      row[j] = std::min({replaced, row[j] + kWrong, row[j - 1] + kMissing});
    }
  }
  return row.back();
}

}  // namespace

std::string plain_path(std::string_view path) {
  std::string plain;
  for (const char c : path)
    if (c != '/' || plain.empty() || plain.back() != '/') plain += c;
  if (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return plain;
}

std::string nearest_route(std::string_view path) {
  std::string small(path.substr(0, kLongest));
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const RouteEntry* nearest = nullptr;
  std::pair<int64_t, int64_t> least{};
  for (const RouteEntry& route : route_entries()) {
    const std::pair apart{-shared_parts(small, route.path), distance(small, route.path)};
    if (nearest && apart >= least) continue;
    nearest = &route;
    least = apart;
  }
  return std::string(nearest->method) + " " + nearest->path;
}

}  // namespace situ::serve
