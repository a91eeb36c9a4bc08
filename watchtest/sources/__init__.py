"""Where the code under test comes from, and when it has changed.

    tree_id       git's ids of content and trees, computed without git (pure)
    entry         reads one path: what it is, and its content without mixing two versions
    git           the only module that starts git, in a way that nothing of the repository can run
    git_objects   reads trees and blobs of a repository
    git_ignore    which paths git ignores, and when its answers are stale
    globs         ignore patterns evaluated by pathspec: the user's, and the .gitignore files where git is absent
    secret_files  names of files that probably hold secrets
    ignore        which paths are left out of the box
    walk          lists the working tree folder by folder
    worktree      takes snapshots of the working tree, with HEAD, the branch and the dirty flag
    git_tree      takes snapshots of the index, of HEAD or of a given tree
    inotify, streams   report changed paths: inotify (Linux), watchfiles (elsewhere), polling (where neither works)
    file_watch    subscribes to the folders that matter, and decides when to take the next snapshot of the working tree
    git_watch     reports when the index or HEAD changes

Nothing here writes into the workspace or the repository.
"""
