#include "lipgrad/workers.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include <lipgrad/core/error.h>

namespace lipgrad::cli {
namespace {

double since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

Workers::~Workers() {
  signal(SIGKILL);
  for (const Process& process : processes_)
    while (::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void Workers::start(std::size_t job, const std::vector<std::string>& arguments,
                    const std::string& log) {
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (out < 0) throw Error(fmt::format("{}: cannot be written: {}", log, std::strerror(errno)));
  std::vector<char*> words;
  std::string program = "lipgrad";
  words.push_back(program.data());
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid == 0) {
    // Between fork and exec nothing that may take a lock.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    const int in = ::open("/dev/null", O_RDONLY);
    if (in >= 0) ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    // The very file that runs, even if another one has its name by now.
    ::execv("/proc/self/exe", words.data());
    ::_exit(127);
  }
  const int error = errno;
  ::close(out);
  if (pid < 0) throw Error(fmt::format("sweep: cannot start a process: {}", std::strerror(error)));
  processes_.push_back({pid, job, std::chrono::steady_clock::now()});
}

std::optional<Workers::Ended> Workers::wait(int milliseconds) {
  const auto began = std::chrono::steady_clock::now();
  for (;;) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const Process process = processes_[i];
      int status = 0;
      const pid_t pid = ::waitpid(process.pid, &status, WNOHANG);
      if (pid == 0 || (pid < 0 && errno == EINTR)) continue;
      processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(i));
      Ended ended{process.job, 127, 0, since(process.began)};
      if (pid > 0 && WIFEXITED(status)) ended.status = WEXITSTATUS(status);
      if (pid > 0 && WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
      return ended;
    }
    if (since(began) * 1000 >= milliseconds) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Workers::signal(int signal) {
  for (const Process& process : processes_) ::kill(process.pid, signal);
}

std::vector<std::pair<std::size_t, double>> Workers::elapsed() const {
  std::vector<std::pair<std::size_t, double>> jobs;
  for (const Process& process : processes_) jobs.emplace_back(process.job, since(process.began));
  return jobs;
}

}  // namespace lipgrad::cli
