// SPDX-License-Identifier: Apache-2.0
#include "core/base/io_hint.h"

#include <cerrno>

namespace pipetwin {

std::string io_hint(int code) {
    switch (code) {
        case ENOENT:
            return "check the name; a relative path starts at the current folder";
        case EACCES:
        case EPERM:
            return "'ls -l' shows who may read and write it";
        case EROFS:
            return "the file system is read-only: name a place on another one";
        case ENOSPC:
        case EDQUOT:
            return "free some space on this disk, or name a place on another one";
        case EFBIG:
            return "raise the limit of the size of files ('ulimit -f' shows it), or write to "
                   "another "
                   "file system";
        case EMFILE:
        case ENFILE:
            return "raise the limit of open files ('ulimit -n' shows it)";
        case ENOMEM:
            return "close other programs, or raise the limit of memory ('ulimit -v' shows it)";
        case EISDIR:
            return "name a file in this folder";
        case ENOTDIR:
            return "a part of the path in front of the name is a file: check the path";
        case ELOOP:
            return "the links in this path lead in a circle: name the file itself";
        case ENAMETOOLONG:
            return "choose a shorter name";
        case EIO:
            return "the disk reports an error: 'dmesg' says more; read or write a copy on another "
                   "one";
        default:
            return "'ls -ld' shows whether it is there, and who may read and write it";
    }
}

}  // namespace pipetwin
