// SPDX-License-Identifier: Apache-2.0
/* Stands in for libFuzzer in an ordinary build: gives every file named, and every file of every
 * folder named, to the target, each in a block of exactly its size. Fails when there are none. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        return -1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, f) != size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        fclose(f);
        free(data);
        return -1;
    }
    fclose(f);
    printf("%s\n", path);
    fflush(stdout); /* the last line is the one that ended the program */
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

static int hidden_left_out(const struct dirent *d) { return d->d_name[0] != '.'; }

/* Files given to the target, -1: one could not be read. */
static int replay(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return replay_file(path);
    struct dirent **names;
    int n = scandir(path, &names, hidden_left_out, alphasort), done = 0;
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        int more = done < 0 ? -1 : replay(file);
        done = more < 0 ? -1 : done + more;
        free(names[i]);
    }
    if (n >= 0) free(names);
    return n < 0 ? -1 : done;
}

int main(int argc, char **argv) {
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);
        if (n < 0) return 1;
        total += n;
    }
    printf("%d inputs\n", total);
    return total > 0 ? 0 : 1;
}
