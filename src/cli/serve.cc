// `situ serve`: the process around the server: signals, what it prints, when it ends.
#include "cli/serve.h"

#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/health_check.h"
#include "cli/inspect_html.h"
#include "serve/server.h"
#include "situ/tools.h"

namespace situ::cli {
namespace {

// The signals of a server come by a descriptor, to one thread.
int signals_descriptor() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, s);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

// 0: none has come.
int next_signal(int descriptor) {
  signalfd_siginfo info{};
  return read(descriptor, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

// What a service manager is told (sd_notify): by a datagram, where it asks for it.
void notify(const char* state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t size = path ? std::string_view(path).size() : 0;
  if (size < 2 || size >= sizeof(address.sun_path)) return;
  for (size_t i = 0; i < size; ++i) address.sun_path[i] = path[i];
  if (path[0] == '@') address.sun_path[0] = 0;
  const int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
  sendto(s, state, std::string_view(state).size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address), length);
  close(s);
}

void write_line(const std::string& line) {
  const std::string whole = line + "\n";
  for (size_t done = 0; done < whole.size();) {
    const ssize_t n = write(STDERR_FILENO, whole.data() + done, whole.size() - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

// Descriptors for all connections, and for files of models; one line where the system gives fewer.
void raise_descriptors(int64_t connections, bool json) {
  constexpr int64_t kOther = 256;
  const auto wanted = static_cast<rlim_t>(connections + kOther);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  const bool raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
  if (raised && limit.rlim_cur >= wanted) return;
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string warning = std::to_string(connections) + " connections want " + std::to_string(wanted) +
                              " descriptors, and the system gives this process " + std::to_string(limit.rlim_cur) +
                              " (ulimit -Hn, LimitNOFILE=): where they end, the oldest connection without a request "
                              "is closed";
  write_line(json ? nlohmann::ordered_json{{"warning", warning}}.dump() : "situ: warning: " + warning);
}

Result<serve::HostedModels> models_of(const ServeArguments& a) {
  LoadOptions load = a.load;
  load.memory = 0;  // is divided
  std::vector<serve::ModelSource> sources;
  std::vector<std::string> aliases = a.aliases;
  for (const ServeArguments::Named& named : a.named) {
    LoadOptions own = named.load;
    own.memory = 0;
    sources.push_back({named.model, own});
    aliases.push_back(named.name + "=" + named.model);
  }
  for (const std::string& path : a.models) sources.push_back({path, load});
  return serve::HostedModels::of(std::move(sources), aliases, load);
}

Result<serve::ServeOptions> options_of(const ServeArguments& a) {
  serve::ServeOptions o;
  o.host = a.host;
  o.port = a.port;
  o.unix_path = a.unix_path;
  o.api_key_file = a.api_key_file;
  o.media_path = a.media_path;
  o.allowed_hosts = a.allowed_hosts;
  o.cors = a.cors;
  o.max_running = a.max_running;
  o.queue = a.queue;
  o.json_log = a.log == "json";
  o.insecure = a.insecure;
  o.strict = a.strict;
  o.prefix_cache = a.reuse;
  o.share_prefixes = a.share_prefixes;
  o.limits = a.limits;
  o.memory = a.load.memory;
  if (a.media_memory) o.media_memory = *a.media_memory;
  o.log = write_line;
  o.placement = [](Model& model) -> Result<std::string> {
    const Result<std::string> facts = inspect(model, 0);
    if (!facts.is_ok()) return facts.status();
    return html_page(nlohmann::ordered_json::parse(*facts));
  };
  return o;
}

// What runs is answered, within --drain seconds; the next signal ends at once.
int drain(serve::Server& server, const ServeArguments& a, int signals) {
  notify("STOPPING=1");
  server.stop();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(a.drain);
  constexpr auto kLook = std::chrono::milliseconds(20);
  while (!server.drain(kLook)) {
    if (const int again = next_signal(signals); again == SIGINT || again == SIGTERM) {
      if (!a.unix_path.empty()) unlink(a.unix_path.c_str());
      std::_Exit(128 + again);
    }
    if (std::chrono::steady_clock::now() < end) continue;
    server.cut();
    return kFailed;
  }
  return kDone;
}

int serve_until_stopped(serve::Server& server, const ServeArguments& a, int signals) {
  const int loaded = eventfd(0, EFD_CLOEXEC);
  Status status;
  std::thread loader([&] {
    status = server.load();
    const uint64_t one = 1;
    (void)!write(loaded, &one, sizeof(one));
  });
  bool ready = false;
  while (true) {
    pollfd waiting[] = {{signals, POLLIN, 0}, {ready ? -1 : loaded, POLLIN, 0}};
    poll(waiting, 2, -1);
    if (waiting[1].revents != 0) {
      loader.join();
      ready = true;
      if (!status.is_ok()) return fail(status.message());
      for (const std::string& where : server.where()) std::printf("ready %s\n", where.c_str());
      flush_output();
      notify("READY=1");
    }
    const int signal = next_signal(signals);
    if (signal == SIGHUP)
      if (const Status read = server.read_keys(); !read.is_ok()) fail(read.message());
    if (signal != SIGTERM && signal != SIGINT) continue;
    if (!ready) {  // nobody is being answered, and nothing ends a load
      if (!a.unix_path.empty()) unlink(a.unix_path.c_str());
      std::_Exit(kDone);
    }
    return drain(server, a, signals);
  }
}

}  // namespace

int serve(ServeArguments& a) {
  if (a.check) return check_health(*a.check);
  if (!a.config.empty())
    if (const Status read = read_config(*a.command, a); !read.is_ok()) return fail(read.message());
  if (!a.api_key_file.empty())  // before a model is fetched
    if (const Status read = serve::Keys().read(a.api_key_file); !read.is_ok()) return fail(read.message());
  ServeArguments found = a;
  if (const int code = find_served(found); code != kDone) return code;
#ifdef M_ARENA_MAX
  // Each thread would keep a heap as large as the most that it ever had at once: a tiny model took 7% more after 20,000
  // requests than after 1,000, and takes 2.5% more with one heap for all. Small blocks come from a cache of the thread.
  mallopt(M_ARENA_MAX, 1);
#endif
  const int signals = signals_descriptor();
  Result<serve::HostedModels> models = models_of(found);
  if (!models.is_ok()) return fail(models.status().message());
  Result<serve::ServeOptions> options = options_of(a);
  if (!options.is_ok()) return fail(options.status().message());
  raise_descriptors(a.limits.connections, a.log == "json");
  Result<std::unique_ptr<serve::Server>> server = serve::Server::start(std::move(*options), std::move(*models));
  if (!server.is_ok()) {
    fail(server.status().message());
    return server.status().code() == Code::kInvalidArgument ? kRefused : kFailed;
  }
  const int code = serve_until_stopped(**server, a, signals);
  server->reset();
  if (!a.unix_path.empty()) unlink(a.unix_path.c_str());
  return code;
}

}  // namespace situ::cli
