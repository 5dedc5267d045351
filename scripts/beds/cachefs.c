// cachefs: a directory seen through FUSE, with the kernel caches of a network file system and faults on demand.
//
// Mounted twice over one directory, each mount is a host with its own old news.
//
//   cachefs --root=DIR [OPTION]... MOUNTPOINT
//
// Besides the options of libfuse (-f, -o entry_timeout=S,attr_timeout=S,negative_timeout=S,allow_other):
//   --rules=FILE     faults, read anew whenever the file changes; a full path
//   --no-types       listings do not say what is a file and what a directory
//   --no-link        link() fails with EOPNOTSUPP
//   --no-rename      rename() fails with ENOSYS
//   --slow-rename    rename() copies and deletes
//   --on-close       a new file is seen under its name once it is closed
//   --no-fsync       the file system has no fsync(); the kernel makes that a silent success
//
// A rule is a line `OPERATION GLOB ACTION [after=N] [count=N]`:
//   OPERATION  lookup open create read write flush fsync rename unlink link mkdir rmdir readdir, or * for all;
//              `flush` is what close() calls, and its error is that of close()
//   GLOB       is compared with the last component of the path; for rename and link that of the old name
//   ACTION     an error such as EIO; `delay=MILLISECONDS`; `hang` until the rule is taken out; for a read or write
//              `short`, half of it; for a read `garbled`, with its first byte changed; for rename, link and mkdir
//              `lost`: it is done, and the caller gets the error of a request that was sent twice
//   after, count  spare the first N such calls, or take the first N only
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fuse.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PATH_SIZE = 4200, RULES = 64 };

static struct {
  char *root, *rules;
  int no_types, no_link, no_rename, slow_rename, on_close, no_fsync;
} options;

#define OPTION(text, field) { text, offsetof(__typeof__(options), field), 1 }
static const struct fuse_opt known_options[] = {
  OPTION("--root=%s", root), OPTION("--rules=%s", rules), OPTION("--no-types", no_types), OPTION("--no-link", no_link),
  OPTION("--no-rename", no_rename), OPTION("--slow-rename", slow_rename), OPTION("--on-close", on_close),
  OPTION("--no-fsync", no_fsync), FUSE_OPT_END,
};

static const struct { const char *name; int number; } errors[] = {
  { "EIO", EIO }, { "ENOSPC", ENOSPC }, { "EDQUOT", EDQUOT }, { "ESTALE", ESTALE }, { "EINTR", EINTR },
  { "EAGAIN", EAGAIN }, { "EACCES", EACCES }, { "ENOENT", ENOENT }, { "EROFS", EROFS }, { "ETIMEDOUT", ETIMEDOUT },
  { "EBUSY", EBUSY }, { "ENOTEMPTY", ENOTEMPTY },
};

// Rules.

struct rule {
  char operation[16], glob[64], action[32];
  long after, count, seen, used;
};

static struct rule rules[RULES];
static int rule_count;
static struct stat rules_read;
static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;

static int same_file_state(const struct stat *one, const struct stat *other) {
  return one->st_ino == other->st_ino && one->st_size == other->st_size && one->st_mtim.tv_sec == other->st_mtim.tv_sec
    && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

// With the lock held.
static void load_rules(void) {
  struct stat now;
  if (!options.rules || stat(options.rules, &now) || same_file_state(&now, &rules_read)) return;
  FILE *file = fopen(options.rules, "r");
  if (!file) return;
  rules_read = now;
  rule_count = 0;
  char line[256];
  while (rule_count < RULES && fgets(line, sizeof line, file)) {
    struct rule *rule = &rules[rule_count];
    memset(rule, 0, sizeof *rule);
    rule->count = -1;
    char more[2][32] = { "", "" };
    if (sscanf(line, "%15s %63s %31s %31s %31s", rule->operation, rule->glob, rule->action, more[0], more[1]) < 3)
      continue;
    for (int i = 0; i < 2; i++) {
      sscanf(more[i], "after=%ld", &rule->after);
      sscanf(more[i], "count=%ld", &rule->count);
    }
    rule_count++;
  }
  fclose(file);
}

static const char *last_component(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// What happens to a call: nothing, one of these, or an error below 0.
enum { SHORT = 1, GARBLED, LOST };

static int fault(const char *operation, const char *path) {
  const char *name = last_component(path);
  long delay = 0;
  int result = 0, hangs;
  do {
    hangs = 0;
    pthread_mutex_lock(&rules_lock);
    load_rules();
    for (int i = 0; i < rule_count && result >= 0 && !hangs; i++) {
      struct rule *rule = &rules[i];
      int fits = !strcmp(rule->operation, "*") || !strcmp(rule->operation, operation);
      if (!fits || fnmatch(rule->glob, name, 0)) continue;
      if (!strcmp(rule->action, "hang")) {
        hangs = 1;
        continue;
      }
      if (rule->seen++ < rule->after || (rule->count >= 0 && rule->used >= rule->count)) continue;
      rule->used++;
      sscanf(rule->action, "delay=%ld", &delay);
      if (!strcmp(rule->action, "short")) result = SHORT;
      if (!strcmp(rule->action, "garbled")) result = GARBLED;
      if (!strcmp(rule->action, "lost")) result = LOST;
      for (size_t k = 0; k < sizeof errors / sizeof *errors; k++)
        if (!strcmp(rule->action, errors[k].name)) result = -errors[k].number;
    }
    pthread_mutex_unlock(&rules_lock);
    if (hangs) usleep(20000);
  } while (hangs);
  if (delay) usleep((useconds_t)delay * 1000);
  return result;
}

#define FAULT(operation, path) \
  do { \
    int error_ = fault(operation, path); \
    if (error_ < 0) return error_; \
  } while (0)

// Where a path of ours lies in the directory behind.
struct place { char path[PATH_SIZE]; };

static struct place behind(const char *path) {
  struct place place;
  snprintf(place.path, sizeof place.path, "%s%s", options.root, path);
  return place;
}

static const char STAGED[] = ".cachefs-staged.";

// Where a file lies that has not got its name yet: where the other mount does not look.
static struct place staged(const char *path) {
  struct place place;
  const char *name = last_component(path);
  snprintf(place.path, sizeof place.path, "%s%.*s%s%d.%s", options.root, (int)(name - path), path, STAGED, getpid(), name);
  return place;
}

// Where it lies for those who use this mount.
static struct place found(const char *path) {
  struct place place = staged(path);
  return options.on_close && !access(place.path, F_OK) ? place : behind(path);
}

static int result_of(long outcome) {
  return outcome < 0 ? -errno : 0;
}

// Open files.

struct handle {
  int fd;
  // Whether the file gets its name when it is closed.
  int is_staged;
};

static struct handle *handle_of(struct fuse_file_info *info) {
  return (struct handle *)(uintptr_t)info->fh;
}

static int open_behind(const char *path, int flags, mode_t mode, struct fuse_file_info *info) {
  int fd = open(path, flags & ~O_APPEND, mode);
  if (fd < 0) return -errno;
  struct handle *handle = calloc(1, sizeof *handle);
  if (!handle) {
    close(fd);
    return -ENOMEM;
  }
  handle->fd = fd;
  info->fh = (uintptr_t)handle;
  return 0;
}

static int do_open(const char *path, struct fuse_file_info *info) {
  FAULT("open", path);
  return open_behind(found(path).path, info->flags, 0, info);
}

static int do_create(const char *path, mode_t mode, struct fuse_file_info *info) {
  FAULT("create", path);
  int is_new = access(found(path).path, F_OK) != 0;
  if (!is_new && info->flags & O_EXCL) return -EEXIST;
  int is_staged = options.on_close && is_new;
  int error = open_behind(is_staged ? staged(path).path : found(path).path, info->flags | O_CREAT, mode, info);
  if (!error) handle_of(info)->is_staged = is_staged;
  return error;
}

static int do_read(const char *path, char *buffer, size_t size, off_t offset, struct fuse_file_info *info) {
  int what = fault("read", path);
  if (what < 0) return what;
  if (what == SHORT && size > 1) size /= 2;
  ssize_t done = pread(handle_of(info)->fd, buffer, size, offset);
  if (what == GARBLED && done > 0) buffer[0] ^= 1;
  return done < 0 ? -errno : (int)done;
}

static int do_write(const char *path, const char *buffer, size_t size, off_t offset, struct fuse_file_info *info) {
  int what = fault("write", path);
  if (what < 0) return what;
  if (what == SHORT && size > 1) size /= 2;
  ssize_t done = pwrite(handle_of(info)->fd, buffer, size, offset);
  return done < 0 ? -errno : (int)done;
}

static int do_flush(const char *path, struct fuse_file_info *info) {
  FAULT("flush", path);
  struct handle *handle = handle_of(info);
  if (!handle->is_staged) return 0;
  handle->is_staged = 0;
  return result_of(rename(staged(path).path, behind(path).path));
}

static int do_fsync(const char *path, int data_only, struct fuse_file_info *info) {
  FAULT("fsync", path);
  if (options.no_fsync) return -ENOSYS;
  return result_of(data_only ? fdatasync(handle_of(info)->fd) : fsync(handle_of(info)->fd));
}

static int do_release(const char *path, struct fuse_file_info *info) {
  (void)path;
  struct handle *handle = handle_of(info);
  close(handle->fd);
  free(handle);
  return 0;
}

static int do_truncate(const char *path, off_t size, struct fuse_file_info *info) {
  return result_of(info ? ftruncate(handle_of(info)->fd, size) : truncate(found(path).path, size));
}

// Names.

static int do_getattr(const char *path, struct stat *out, struct fuse_file_info *info) {
  struct place place = found(path);
  struct stat named;
  // An open directory has no handle of ours.
  int is_directory = !lstat(place.path, &named) && S_ISDIR(named.st_mode);
  if (info && info->fh && !is_directory) return result_of(fstat(handle_of(info)->fd, out));
  FAULT("lookup", path);
  return result_of(lstat(place.path, out));
}

// The outcome as the caller hears of it, when `what` is LOST: that of doing it again.
static int twice(int what, int outcome, int again) {
  return what == LOST && !outcome ? again : outcome;
}

static int do_mkdir(const char *path, mode_t mode) {
  int what = fault("mkdir", path);
  if (what < 0) return what;
  return twice(what, result_of(mkdir(behind(path).path, mode)), -EEXIST);
}

static int do_unlink(const char *path) {
  FAULT("unlink", path);
  return result_of(unlink(found(path).path));
}

static int do_rmdir(const char *path) {
  FAULT("rmdir", path);
  return result_of(rmdir(behind(path).path));
}

static int do_symlink(const char *target, const char *path) {
  return result_of(symlink(target, behind(path).path));
}

static int do_readlink(const char *path, char *buffer, size_t size) {
  ssize_t length = readlink(behind(path).path, buffer, size - 1);
  if (length < 0) return -errno;
  buffer[length] = 0;
  return 0;
}

// Observers see the new name grow while the old one is still there.
static int copy_and_delete(const char *from, const char *to) {
  int in = open(from, O_RDONLY), out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  int error = in < 0 || out < 0 ? -errno : 0;
  char buffer[65536];
  ssize_t length = 0;
  while (!error && (length = read(in, buffer, sizeof buffer)) > 0) {
    if (write(out, buffer, (size_t)length) != length) error = -EIO;
    usleep(2000);
  }
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  return error ? error : result_of(unlink(from));
}

static int do_rename(const char *from, const char *to, unsigned flags) {
  int what = fault("rename", from);
  if (what < 0) return what;
  if (options.no_rename) return -ENOSYS;
  if (options.slow_rename && !flags) return copy_and_delete(behind(from).path, behind(to).path);
  return twice(what, result_of(renameat2(AT_FDCWD, behind(from).path, AT_FDCWD, behind(to).path, flags)), -ENOENT);
}

static int do_link(const char *from, const char *to) {
  int what = fault("link", from);
  if (what < 0) return what;
  if (options.no_link) return -EOPNOTSUPP;
  return twice(what, result_of(link(behind(from).path, behind(to).path)), -EEXIST);
}

static int do_chmod(const char *path, mode_t mode, struct fuse_file_info *info) {
  (void)info;
  return result_of(chmod(found(path).path, mode));
}

static int do_chown(const char *path, uid_t user, gid_t group, struct fuse_file_info *info) {
  (void)info;
  return result_of(lchown(found(path).path, user, group));
}

static int do_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info) {
  (void)info;
  return result_of(utimensat(AT_FDCWD, found(path).path, times, AT_SYMLINK_NOFOLLOW));
}

static int do_statfs(const char *path, struct statvfs *out) {
  return result_of(statvfs(behind(path).path, out));
}

// Listings.

static int do_opendir(const char *path, struct fuse_file_info *info) {
  DIR *directory = opendir(behind(path).path);
  info->fh = (uintptr_t)directory;
  return directory ? 0 : -errno;
}

static int do_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
  enum fuse_readdir_flags flags) {
  (void)flags;
  FAULT("readdir", path);
  DIR *directory = (DIR *)(uintptr_t)info->fh;
  if (offset) seekdir(directory, offset);
  else rewinddir(directory);
  struct dirent *entry;
  while ((entry = readdir(directory))) {
    if (!strncmp(entry->d_name, STAGED, sizeof STAGED - 1)) continue;
    struct stat known = { .st_ino = entry->d_ino, .st_mode = (mode_t)entry->d_type << 12 };
    if (fill(buffer, entry->d_name, options.no_types ? NULL : &known, entry->d_off, 0)) break;
  }
  return 0;
}

static int do_releasedir(const char *path, struct fuse_file_info *info) {
  (void)path;
  return result_of(closedir((DIR *)(uintptr_t)info->fh));
}

static void *do_init(struct fuse_conn_info *connection, struct fuse_config *config) {
  (void)config;
  // A listing that brings attributes along would correct what the kernel remembers of names.
  connection->want &= ~(unsigned)(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
  return NULL;
}

static const struct fuse_operations operations = {
  .init = do_init, .getattr = do_getattr, .readlink = do_readlink, .mkdir = do_mkdir, .unlink = do_unlink,
  .rmdir = do_rmdir, .symlink = do_symlink, .rename = do_rename, .link = do_link, .chmod = do_chmod,
  .chown = do_chown, .truncate = do_truncate, .utimens = do_utimens, .open = do_open, .create = do_create,
  .read = do_read, .write = do_write, .flush = do_flush, .release = do_release, .fsync = do_fsync,
  .opendir = do_opendir, .releasedir = do_releasedir, .readdir = do_readdir, .statfs = do_statfs,
};

int main(int count, char **arguments) {
  struct fuse_args args = FUSE_ARGS_INIT(count, arguments);
  if (fuse_opt_parse(&args, &options, known_options, NULL)) return 1;
  if (!options.root || !(options.root = realpath(options.root, NULL))) {
    fprintf(stderr, "cachefs: --root=DIR is needed, and has to be there\n");
    return 2;
  }
  if (options.rules && options.rules[0] != '/') {
    fprintf(stderr, "cachefs: --rules wants a full path\n");
    return 2;
  }
  umask(0);
  return fuse_main(args.argc, args.argv, &operations, NULL);
}
