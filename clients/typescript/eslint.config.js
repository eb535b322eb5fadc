import eslint from '@eslint/js'
import tseslint from 'typescript-eslint'

export default tseslint.config(
  { ignores: ['build', 'dist', 'src/gen', '.readme'] },
  eslint.configs.recommended,
  {
    files: ['examples/*.js'],
    languageOptions: {
      globals: { Buffer: false, console: false, process: false, setTimeout: false },
    },
  },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      // A switch over the contract's values has a default, since new ones may come.
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
    },
  },
  {
    files: ['tests/**/*.ts'],
    rules: {
      // Handlers of the tests are async where the scenario needs it, and plain where it does not.
      '@typescript-eslint/require-await': 'off',
      // They say what this version does not know.
      '@typescript-eslint/no-unsafe-enum-assignment': 'off',
    },
  },
)
