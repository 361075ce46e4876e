#include "cli/hub/pulled.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>

#include "base/descriptor.h"
#include "cli/hub/cache.h"

namespace situ::hub {
namespace {

namespace fs = std::filesystem;
using Lines = std::set<std::string>;

// "": there is no home.
fs::path pulled_file() {
  for (const auto& [name, below] :
       {std::pair<const char*, const char*>{"XDG_STATE_HOME", "situ/pulled"}, {"HOME", ".local/state/situ/pulled"}})
    if (const char* value = std::getenv(name); value != nullptr && value[0] == '/') return fs::path(value) / below;
  return {};
}

Lines read_lines() {
  Lines all;
  std::ifstream in(pulled_file());
  for (std::string line; std::getline(in, line);) all.insert(line);
  return all;
}

std::string begun(const fs::path& repository) { return "begun " + repository.string(); }

// What cannot be noted is not ours.
void change(const std::function<void(Lines*)>& how) {
  const fs::path file = pulled_file();
  Lines lines = read_lines();
  const Lines before = lines;
  how(&lines);
  if (file.empty() || lines == before) return;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  const Descriptor lock(open((file.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.number() < 0 || flock(lock.number(), LOCK_EX) != 0) return;
  lines = read_lines();  // others may have written since
  how(&lines);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  (void)write_whole(file, text);
}

}  // namespace

bool has_revision(const fs::path& repository) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(repository / "refs", error), end; !error && it != end; it.increment(error))
    if (std::error_code none; it->is_regular_file(none)) return true;
  return false;
}

void PulledList::begin(const fs::path& repository) {
  std::error_code error;
  if (fs::exists(repository, error)) return;
  change([&](Lines* lines) {
    lines->erase(repository.string());
    lines->insert(begun(repository));
  });
}

void PulledList::end(const fs::path& repository) {
  const bool ours = !has_revision(repository);
  change([&](Lines* lines) {
    if (lines->erase(begun(repository)) != 0 && ours) lines->insert(repository.string());
  });
}

void PulledList::forget(const fs::path& repository) {
  change([&](Lines* lines) {
    lines->erase(begun(repository));
    lines->erase(repository.string());
  });
}

bool PulledList::has_begun(const fs::path& repository) { return read_lines().count(begun(repository)) != 0; }

bool PulledList::has(const fs::path& repository) {
  const Lines lines = read_lines();
  return lines.count(repository.string()) != 0 || (lines.count(begun(repository)) != 0 && !has_revision(repository));
}

}  // namespace situ::hub
