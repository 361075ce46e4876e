#include "runtime/warm_pages.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace situ {
namespace {

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;
#endif

// A kernel before 5.14 is asked page by page.
void map_pages(uintptr_t begin, uintptr_t end, uintptr_t page) {
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ) == 0) return;
  for (uintptr_t p = begin; p < end; p += page) static_cast<void>(*reinterpret_cast<const volatile std::byte*>(p));
}

void map_pages(std::span<const std::byte> bytes, const std::atomic<bool>& stops) {
  constexpr uintptr_t kPiece = uintptr_t{1} << 20;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = first / page * page, end = first + bytes.size();
  for (uintptr_t p = begin; p < end && !stops; p += kPiece)
    map_pages(p, (std::min(p + kPiece, end) + page - 1) / page * page, page);
}

}  // namespace

void WarmPages::begin(std::vector<std::span<const std::byte>> bytes) try {
  thread_ = ProcessThread([this, all = std::move(bytes)] {
    const sched_param none{};
    static_cast<void>(sched_setscheduler(0, SCHED_IDLE, &none));
    for (const std::span<const std::byte> some : all) map_pages(some, stops_);
  });
} catch (const std::system_error&) {
  // No thread is left: the first step maps them.
}

void WarmPages::stop() {
  stops_ = true;
  thread_.join();
}

}  // namespace situ
